"""The example that keeps rows without the client: what its rules make of records."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "topic_rows.py"


def change(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "unchanged": []}


def test_rows_without_a_key_are_found_although_arrays_are_text_in_keys() -> None:
    apply = runpy.run_path(str(EXAMPLE))["apply"]
    rows: dict[str, list[dict[str, Any]]] = {}

    for key, written in (
        ("{1,2}", change("c", None, {"a": [1, 2]})),
        ("{3}", change("c", None, {"a": [3]})),
        ("{1,2}", change("u", {"a": [1, 2]}, {"a": [4]})),
        ("{3}", change("d", {"a": [3]}, None)),
    ):
        apply(rows, {"a": key}, written, None, None, keyed=False)

    assert [row for equal in rows.values() for row in equal] == [{"a": [4]}]
