"""Keys that docs/envelope.md calls equal name one row, whichever text each record has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pgsluice_client import TableRows
from pgsluice_client.decoding import Decoder
from tests.support.models.topics import TEXTS, VALUE, Topics, Written


def decoder(properties: dict[str, str]) -> Decoder:
    """One by whose schema column c is of another type, and identifies the row."""
    schema: dict[str, Any] = json.loads(TEXTS[VALUE])
    (_, row) = schema["fields"][0]["type"]
    row["fields"][2] |= properties
    schema["pg_identity"] = ["c"]
    return Decoder({**TEXTS, VALUE: json.dumps(schema)}.__getitem__)


@pytest.mark.parametrize(
    ("properties", "one", "other", "is_equal"),
    [
        ({"pg_type": "numeric"}, "1.50", "1.5", True),
        ({"pg_type": "numeric"}, "2.00", "2", True),
        ({"pg_type": "numeric"}, "20", "2", False),
        ({"pg_type": "amount", "pg_base_type": "numeric"}, "2.00", "2", True),
        ({"pg_type": "character(5)"}, "a    ", "a", True),
        ({"pg_type": "text"}, "a ", "a", False),
        ({"pg_type": "interval"}, "1 day", "24:00:00", True),
        ({"pg_type": "interval"}, "1 mon", "30 days", True),
        ({"pg_type": "interval"}, "1 day", "24:00:01", False),
        ({"pg_type": "jsonb"}, '{"x": 1.50}', '{"x": 1.5}', True),
        ({"pg_type": "jsonb"}, '{"x": "1.50"}', '{"x": "1.5"}', False),
    ],
)
def test_texts_that_are_equal_identify_one_row(
    properties: dict[str, str], one: str, other: str, is_equal: bool
) -> None:
    topics, rows = Topics(), TableRows()
    for number, text in enumerate((one, other), 1):
        row = {"a": number, "b": 1, "c": text}
        topics.change("t", Written("r", number, (0,), after=row), 100 * number, 0, None)

    for change in decoder(properties).changes(topics.partitions["t", 0]):
        rows.apply(change)

    assert [row["a"] for row in rows] == ([2] if is_equal else [1, 2])
