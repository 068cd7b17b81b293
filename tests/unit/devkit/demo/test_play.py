"""Progress of the Spark job, as the demo shows it."""

from __future__ import annotations

from pathlib import Path

from devkit.demo.play import rebuilt


def test_a_table_is_begun_when_it_has_a_commit(tmp_path: Path) -> None:
    log = tmp_path / "eu" / "public" / "orders" / "_delta_log"
    log.mkdir(parents=True)
    assert rebuilt(tmp_path) == set()
    (log / "00000000000000000000.json").write_text("{}")
    (log / "00000000000000000001.json").write_text("{}")
    assert rebuilt(tmp_path) == {"eu.public.orders"}
    assert rebuilt(tmp_path / "nothing yet") == set()
