"""docs/monitoring.md names every metric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.monitor.metrics import PREFIX
from tests.unit.monitor.test_metrics import everything

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "monitoring.md"
_ROW = re.compile(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|([^|]*)\|", re.MULTILINE)


def test_the_table_of_metrics_has_every_name_with_its_labels() -> None:
    table = DOCUMENT.read_text().partition("## Metrics")[2].partition("## ")[0]
    documented = {
        name: tuple(re.findall(r"`([a-z_]+)`", labels))
        for names, labels in _ROW.findall(table)
        for name in re.findall(r"`([a-z_]+)`", names)
    }
    shown = {}
    for family in everything():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        total = "_total" if family.type == "counter" else ""
        shown[family.name.removeprefix(PREFIX) + total] = labels

    assert {name: set(labels) for name, labels in documented.items()} == shown
