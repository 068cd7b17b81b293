"""Records of the progress topic that somebody else has put there: data, and never an order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import schemas
from gateway.copy import Progress
from gateway.core.watermark import CopyRequest
from gateway.envelope.encoding.varint import encode_long
from gateway.envelope.envelope import wire_prefix
from gateway.envelope.progress import (
    ProgressKey,
    ProgressKind,
    copy_name,
    encode_copy_state,
    encode_key,
    encode_request,
)
from gateway.runtime.reload.reloader import LOOK_FOR_REQUESTS, channel_of
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.own_topics.progress import read_progress
from gateway.sink.own_topics.requests import send
from gateway.sink.registry.registry import Registry
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
    wait_until_confirmed,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a < 1000);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


class Forger:
    """Whoever may write to the progress topic, and knows the gateway's keys."""

    def __init__(self, scene: Scene, registry: str) -> None:
        self.topic = f"{scene.slot}.progress"
        self._kafka = {"bootstrap.servers": scene.project.bootstrap}
        with scene.connect() as connection:
            system = value_of(connection, "SELECT system_identifier::text FROM pg_control_system()")
            database = value_of(connection, "SELECT current_database()")
        self.identity = SlotIdentity(str(system), str(database), scene.slot)
        self._registry = Registry({"url": registry})

    def close(self) -> None:
        self._registry.close()

    def put(self, kind: ProgressKind, name: str, value: bytes) -> None:
        key = encode_key(ProgressKey(*self.identity.key, kind, name))
        self.put_raw(self._wire("key", key), self._wire("value", value))

    def put_raw(self, key: bytes, value: bytes) -> None:
        send(self._kafka, [(self.topic, 0, key, value, [])], "forging")

    def ask(self, name: str, where: str) -> None:
        self.put("request", name, encode_request(CopyRequest(name, "public", "t", None, where)))

    def found(self) -> CommittedState:
        return read_progress(self._kafka, self.topic, self.identity, 60)

    def _wire(self, part: str, avro: bytes) -> bytes:
        schema = schemas.load("progress-key" if part == "key" else "progress")
        return wire_prefix(self._registry.register(f"{self.topic}-{part}", schema)) + avro


@pytest.fixture
def forge(registry: str) -> Iterator[Callable[[Scene], Forger]]:
    made: list[Forger] = []

    def make(scene: Scene) -> Forger:
        made.append(Forger(scene, registry))
        return made[-1]

    yield make
    for one in made:
        one.close()


def conditions(proof: Path) -> dict[str, str]:
    """Texts that would do something else than choose rows."""
    return {
        "program": f"true)) TO PROGRAM 'touch {proof}' --",
        "second": f"true); COPY (SELECT 1) TO '{proof}'; SELECT (true",
        "subquery": "EXISTS (SELECT FROM pg_authid WHERE rolname = 'postgres')",
        "reads a file": "pg_read_file('/etc/hostname') IS NOT NULL",
        "runs a query": "query_to_xml('DROP TABLE t', true, true, '') IS NOT NULL",
        "of somebody": "public.mine(a)",
        "unreadable": "a >",
        "no condition": "a",
    }


def test_requests_and_states_that_no_gateway_has_written_are_passed_over(
    scene: Callable[..., Scene],
    database: Database,
    forge: Callable[[Scene], Forger],
    tmp_path: Path,
) -> None:
    proof = tmp_path / "proof"
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2);"
            "CREATE TABLE seen (n int); CREATE FUNCTION mine(int) RETURNS bool LANGUAGE sql AS"
            " 'INSERT INTO seen VALUES (1) RETURNING true'"
        )
        s = scene(DEFINITIONS, http={"listen": "127.0.0.1:0"})
        s.run_to(current_lsn(connection))
        copied = len(s.read("t"))
        forger = forge(s)
        for name, where in conditions(proof).items():
            forger.ask(name, where)
        # What is no record of this topic at all, and what claims to be more than it is.
        forger.put_raw(b"no key", b"no value")
        forger.put_raw(b"\0\0\0\0\1" + b"\xff" * 30, b"")
        forger.put("request", "bomb", encode_long(6) + b"\0\0\0\2" + encode_long(1 << 40))
        forger.put("copy", "another", b"\x0c" + b"\xff" * 9)
        forger.put("offsets", f"{s.slot}.public.other", encode_long(6) + b"\0\0\2" + b"\2\1\0\0")
        watermark = forger.found().watermark
        assert watermark is not None
        (state,) = watermark.copies
        said = json.loads(state.taken)
        said["publishes"][0]["filters"]["insert"] = [["p", "public.mine(a)"]]
        forged = replace(state, taken=json.dumps(said))
        forger.put("copy", copy_name(state), encode_copy_state(forged))

        connection.execute("INSERT INTO t VALUES (3)")
        s.run_to(current_lsn(connection))

        assert forger.found().requests == (), "a request that cannot be followed is kept"
        assert not proof.exists()
        assert value_of(connection, "SELECT count(*) FROM seen") == 0
        assert len(s.read("t")) == copied + 1, "somebody else's condition is followed"

        # The same while the gateway runs, and a copy that a condition was forged into.
        gateway = s.project.start()
        for name, where in conditions(proof).items():
            forger.ask(name, where)
        forger.ask("right", "a = 2")

        def dealt_with() -> bool:
            # A gateway that starts may have looked already, and does not listen yet.
            said = [channel_of(s.slot), LOOK_FOR_REQUESTS]
            connection.execute("SELECT pg_notify(%s, %s)", said)
            return not forger.found().requests

        wait_until(dealt_with, 60, "the requests to be dealt with")
        connection.execute("INSERT INTO t VALUES (4)")
        wait_until_confirmed(connection, s.slot)
        assert gateway.terminate() == 0, gateway.log()
        again = replace(state, asked="pg_read_file('/etc/hostname') IS NOT NULL", taken="")
        forger.put("copy", copy_name(state), encode_copy_state(again))
        broken = replace(
            state, state="copying", progress=Progress((b"1", b"2", b"no number"), False)
        )
        s.run_to(current_lsn(connection))
        whole = s.rebuilt("t")
        forger.put("copy", copy_name(state), encode_copy_state(broken))
        s.run_to(current_lsn(connection))

    assert not proof.exists()
    assert whole == s.rebuilt("t") == [(1,), (2,), (3,), (4,)]
    assert_exactly_once(s, ["t"])
