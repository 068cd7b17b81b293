"""The documents show the statements of the event trigger as they are."""

from __future__ import annotations

from pathlib import Path

from gateway.definitions.ddl.alterations import PREFIXES
from gateway.source.provisioning.event_trigger import FUNCTIONS, INSTALL


def test_their_page_shows_the_event_triggers() -> None:
    page = Path(__file__).parents[4] / "docs" / "event-triggers.md"
    assert f"```sql\n{INSTALL}```" in page.read_text(encoding="utf-8")


def test_the_messages_are_written_under_the_prefixes_that_are_read() -> None:
    assert all(f"pgsluice.emit('{prefix}'," in INSTALL for prefix in PREFIXES)


def test_every_function_is_compared_with_what_is_installed() -> None:
    assert FUNCTIONS.keys() == {"emit", "tell", "publications_altered", "table_rewritten"}
    assert INSTALL.count("CREATE FUNCTION") == len(FUNCTIONS)
