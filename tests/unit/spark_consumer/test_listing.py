"""Output of `pgsluice tables` for a state on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_consumer.listing import print_tables
from spark_consumer.settings import ConsumerSettings
from spark_consumer.states.manifests import _NEWEST as NEWEST
from spark_consumer.states.manifests import Manifest, manifest_folder
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
