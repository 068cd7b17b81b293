"""Text that is shown to people."""

from __future__ import annotations

import pytest

from gateway.core.display import first_lines


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("one;\ntwo;", 9, "one;\ntwo;"),
        ("one;\ntwo;", 8, "one;\nmore"),
        ("one;\ntwo;", 4, "one;\nmore"),
        ("one;\ntwo;", 3, "more"),
        ("", 0, ""),
    ],
)
def test_a_text_is_cut_between_lines(text: str, most: int, expected: str) -> None:
    assert first_lines(text, most, "more") == expected
