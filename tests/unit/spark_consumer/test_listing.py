"""Output of `pgsluice tables` for a state on a local disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.delta.log_files import LOG
from spark_consumer.kafka.position import Position
from spark_consumer.listing import print_tables
from spark_consumer.names import table_folder
from spark_consumer.settings import ConsumerSettings
from spark_consumer.states.manifests import _NEWEST as NEWEST
from spark_consumer.states.manifests import Manifest, TableState, manifest_folder
from spark_consumer.states.manifests import _to_json as written


def test_a_table_goes_by_its_own_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",)
    )
    folder = Path(manifest_folder(str(tmp_path), "s"))
    folder.mkdir(parents=True)
    copies = {"public.Order-x0020-lines": "copying"}
    (folder / NEWEST[0]).write_text(written(Manifest("id", copies=copies, store=1)))

    print_tables(settings, at=None, as_json=False)

    assert "table public.Order lines: copying" in capsys.readouterr().out.splitlines()


def test_the_time_of_a_state_is_not_before_that_of_a_table_s_last_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",)
    )
    later = Commit(Position("id", 3, 0x90, 2_000_000, "s.public.t", "t", {0: 5}), {})
    action = {"commitInfo": {"userMetadata": later.text()}}
    log = Path(table_folder(str(tmp_path), "s", "public.t")) / LOG
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text(json.dumps(action))
    tables = {"public.t": TableState(Version(0), "s.public.t")}
    manifest = Manifest("id", end_lsn=0x100, commit_time=1_000_000, tables=tables, store=1)
    folder = Path(manifest_folder(str(tmp_path), "s"))
    folder.mkdir(parents=True)
    (folder / NEWEST[0]).write_text(written(manifest))

    print_tables(settings, at=None, as_json=False)

    shown = capsys.readouterr().out
    assert "last change 0/90 (1970-01-01T00:00:02Z)" in shown
    assert "up to: 0/100 (1970-01-01T00:00:02Z)" in shown
