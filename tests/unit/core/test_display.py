"""Text that is shown to people."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from gateway.core.display import first_lines, said_if_slow
from tests.support.run.waiting import wait_until


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


def test_a_step_that_takes_long_is_said_and_no_other() -> None:
    with redirect_stderr(io.StringIO()) as err:
        with said_if_slow("reading", after_s=600.0):
            pass
        with said_if_slow("waiting", after_s=0.0):
            wait_until(err.getvalue, 10, "the line")
        with pytest.raises(KeyError), said_if_slow("compiling", after_s=600.0):
            raise KeyError

    assert err.getvalue() == "waiting\n"
