"""Composite values in text, against what PostgreSQL's manual and record_in say."""

from __future__ import annotations

import pytest

from gateway.pgtypes.records import split_record


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("(1,NSW)", ["1", "NSW"]),
        ('("fuzzy dice",42,1.99)', ["fuzzy dice", "42", "1.99"]),
        ("(,)", [None, None]),
        ('("",)', ["", None]),
        ('("a ""b"" \\"c",d\\,e)', ['a "b" "c', "d,e"]),
        (' (a"b,c"d) ', ["ab,cd"]),
        ("( a )", [" a "]),
    ],
)
def test_fields_are_split_as_by_the_server(text: str, fields: list[str | None]) -> None:
    assert split_record(text) == fields


@pytest.mark.parametrize("text", ["1,2", "(1,2", '("a', "(1)x", "(1\\"])
def test_what_the_server_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed record literal"):
        split_record(text)
