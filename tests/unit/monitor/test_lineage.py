"""Flows that the gateway reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.core.errors import ConfigError
from gateway.core.watermark import CopyState
from gateway.monitor.lineage import flows, sending_lineage, source_address
from gateway.monitor.notify import Notifier
from gateway.monitor.watch import Watch
from gateway.observe import Counters
from tests.unit.config.test_config import load
from tests.unit.monitor.figures import figures, loop_state


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("host=h port=5433 dbname=d password=secret", ("h", "5433")),
        ("postgresql://u:secret@h/d", ("h", "5432")),
        ("postgresql://u@a:1,b:2/d", ("a", "1")),
        ("hostaddr=10.0.0.1 dbname=d", ("10.0.0.1", "5432")),
        ("host=/run/postgresql dbname=d", ("localhost", "5432")),
        ("dbname=d", ("localhost", "5432")),
    ],
)
def test_a_server_is_named_by_its_first_address(
    dsn: str, address: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE"):
        monkeypatch.delenv(variable, raising=False)
    assert source_address(dsn) == address


def test_a_server_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "h")
    monkeypatch.setenv("PGPORT", "5433")
    assert source_address("dbname=d") == ("h", "5433")


def test_published_tables_flow_into_their_topics(tmp_path: Path) -> None:
    copies = (
        CopyState("nsw", "public", "t", "ready", topic="nsw.public.t"),
        CopyState("nsw", "public", "old", "gone", topic="nsw.public.old"),
        CopyState("nsw", "public", "u", "pending"),
    )
    known = figures(owner=("7", "shop", "s"), loop=loop_state(copies=copies))
    settings = load(tmp_path)

    (flow,) = flows(settings, ("h", "5432"), known)

    assert (flow.source.name, flow.target.name) == ("shop.public.t", "nsw.public.t")
    assert (flow.target.namespace, flow.rows) == ("kafka://k:9092", 3)
    assert flows(settings, ("h", "5432"), replace(known, owner=None)) == []


def test_a_configuration_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "carrier-pigeon")
    settings = load(tmp_path, {"monitor": ["openlineage = true"]})
    watch = Watch(settings, Counters(), Notifier({}), server=False)

    refused = pytest.raises(ConfigError, match="OpenLineage cannot be used")
    with refused, sending_lineage(settings, watch):
        pass
