"""The documents show the statements of the event trigger as they are."""

from __future__ import annotations

from pathlib import Path

from gateway.definitions.told import PREFIX
from gateway.source.event_trigger import INSTALL


def test_operations_show_the_event_trigger() -> None:
    operations = Path(__file__).parents[2] / "docs" / "operations.md"
    assert f"```sql\n{INSTALL}```" in operations.read_text(encoding="utf-8")


def test_the_message_is_written_under_the_prefix_that_is_read() -> None:
    assert f"pg_logical_emit_message(true, '{PREFIX}'," in INSTALL
