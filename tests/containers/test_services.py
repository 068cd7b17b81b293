"""docker-compose.yml as it stands, but for its ports: rows, rights, stops and crashes."""

from __future__ import annotations

import re

import pytest

from tests.support.containers.system import SERVICES, System
from tests.support.run.waiting import wait_until

READ_ONLY = ("postgres", "gateway", "consumer")
PROCESS = """
import pathlib
status = dict(l.split(":", 1) for l in pathlib.Path("/proc/1/status").read_text().splitlines())
print(int(status["CapBnd"], 16), status["NoNewPrivs"].strip(), status["Uid"].split()[0])
"""
KILL = """
import os, pathlib, signal
(child,) = pathlib.Path("/proc/1/task/1/children").read_text().split()
os.kill(int(child), signal.SIGKILL)
"""
ORDERS = """
INSERT INTO orders SELECT g, CASE g % 2 WHEN 0 THEN 'NSW' ELSE 'VIC' END, 1, g
    FROM generate_series({first}, {first} + 999) g;
UPDATE orders SET region = 'VIC' WHERE id = {first};
UPDATE orders SET amount = amount + 1 WHERE id = {first} + 1;
DELETE FROM orders WHERE id = {first} + 2
"""


def verify(system: System) -> None:
    """Compare PostgreSQL, filtered by the definitions, with the Delta tables at one LSN."""
    said = system.exec("consumer", "pgsluice", "verify", "--config", "/etc/pgsluice/pgsluice.toml")

    assert re.findall(r"^(\w+): (\d+) of (\d+) tables equal", said, re.MULTILINE) == [
        ("nsw", "2", "2"),
        ("vic", "2", "2"),
    ]


def test_rows_are_in_the_delta_tables_as_in_postgresql(system: System) -> None:
    system.sql(ORDERS.format(first=10_000))
    system.sql("INSERT INTO customers VALUES (10000, 'Linus', 'NSW')")

    verify(system)


def test_every_service_is_healthy_and_has_what_the_file_grants(system: System) -> None:
    for service in SERVICES:
        container = system.container(service)
        host = container["HostConfig"]

        assert container["State"]["Health"]["Status"] == "healthy", service
        assert host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert host["ReadonlyRootfs"] is (service in READ_ONLY), service
    for service in ("gateway", "consumer"):
        # No capability, no new privileges, the user of the image.
        assert system.exec(service, "python", "-c", PROCESS).split() == ["0", "1", "10001"]
        with pytest.raises(AssertionError, match="Read-only file system"):
            system.exec(service, "python", "-c", "open('/opt/x', 'w')")


def test_nothing_is_lost_when_the_gateway_is_killed_and_when_it_is_stopped(system: System) -> None:
    system.sql(ORDERS.format(first=20_000))
    before = system.container("gateway")["RestartCount"]
    system.exec("gateway", "python", "-c", KILL)
    system.sql(ORDERS.format(first=30_000))
    wait_until(
        lambda: system.container("gateway")["RestartCount"] > before,
        60,
        "the engine to start the gateway again",
    )
    system.wait_healthy("gateway")

    system.compose("stop", "gateway")
    assert system.container("gateway")["State"]["ExitCode"] == 0
    system.sql(ORDERS.format(first=40_000))
    system.wait_healthy("gateway")

    verify(system)


@pytest.mark.parametrize("service", ["gateway", "consumer"])
def test_a_service_ends_by_itself_when_it_is_stopped(system: System, service: str) -> None:
    """Stopped while it works, and while it starts: never killed, which is exit code 137."""
    system.compose("stop", service)
    assert system.container(service)["State"]["ExitCode"] == 0

    system.compose("start", service)
    system.compose("stop", service)
    assert system.container(service)["State"]["ExitCode"] == 0

    system.wait_healthy(service)
