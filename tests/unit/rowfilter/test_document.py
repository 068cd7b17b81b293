"""docs/row-filters.md lists what is supported; it must be what is supported."""

from __future__ import annotations

import pytest

from tools.update_row_filter_document import DOCUMENT, TABLES, section


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_is_true(heading: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    start, end = section(text, heading)

    assert text[start:end].splitlines() == TABLES[heading](), (
        "run: python tools/update_row_filter_document.py"
    )
