"""Mutations of a text: which there are, and that each is Python and changes one line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutations import mutated, mutations


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a <= b"]),
        ("a is None", ["a is not None"]),
        ("(a) in (b)", ["(a) not in (b)"]),
        ("x = a and b", ["x = a or b"]),
        ("x = (not (a or b))", ["x = ((a or b))", "x = (not (a and b))"]),
        ("x = a + 1", ["x = a + 2", "x = a - 1"]),
        ("x = True", ["x = False"]),
        ("if a.b:\n    pass", ["if not (a.b):\n    pass"]),
        ("raise E('é' + a)", ["pass"]),
        ("x = 'é', 7", ["x = 'é', 8"]),
        (
            "def f(a=1):\n    return a",
            ["def f(a=1):\n    return None", "def f(a=2):\n    return a"],
        ),
        ("for a in b:\n    continue", ["for a in b:\n    break"]),
        ("close()", ["pass"]),
    ],
)
def test_lines_that_could_be_wrong(source: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(source)

    found = {mutated(source, one) for one in mutations(path)}

    assert found == set(expected)
    for text in found:
        ast.parse(text)


@pytest.mark.parametrize(
    "source",
    [
        "assert a < b",
        "_log.warning('%d', 1 + 2)",
        "if TYPE_CHECKING:\n    pass",
        "x: Final[Literal[1]]",
        "x = f'{1}' + 'b'",
        "fail_point('a')",
        "a = b < \\\n    c",
    ],
)
def test_lines_that_no_test_is_expected_to_notice(source: str, tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(source)

    assert mutations(path) == []
