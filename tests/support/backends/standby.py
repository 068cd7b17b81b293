"""Hot standbys of the embedded servers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from devkit.embedded.postgres import EmbeddedPostgres
from tests.support.gateway.scene import current_lsn, value_of
from tests.support.run.waiting import wait_until

SLOT = "standby"


@contextmanager
def standby_of(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A hot standby of `server`, with a physical slot, that can synchronise failover slots."""
    with server.connect() as connection:
        connection.execute("SELECT pg_create_physical_replication_slot(%s)", [SLOT])
    with EmbeddedPostgres(server.major) as standby:
        standby.shut_down()
        data = standby.folder / "data"
        owner = data.stat()
        shutil.rmtree(data)
        subprocess.run(
            [
                *(standby.bin / "pg_basebackup", "--pgdata", data, "--checkpoint", "fast"),
                *("--dbname", server.dsn(), "--slot", SLOT, "--wal-method", "stream"),
            ],
            check=True,
            capture_output=True,
        )
        with (data / "postgresql.auto.conf").open("a") as conf:
            conf.write(
                f"primary_conninfo = '{server.dsn()}'\nprimary_slot_name = '{SLOT}'\n"
                "hot_standby_feedback = on\n"
            )
        (data / "standby.signal").touch()
        for path in (data, *data.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        standby.restart()
        yield standby


def wait_until_replayed(server: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """Wait until the standby has everything written so far."""
    with server.connect() as primary, standby.connect() as connection:
        end = current_lsn(primary)
        replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: value_of(connection, replayed, end) is True, 60, "the standby to replay")
