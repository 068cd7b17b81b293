from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from devkit.demo.watch import Change, describe

OLD = {"a": 555, "b": None, "c": "NSW"}
NEW = {"a": 556, "b": 102, "c": "NSW"}


def change(
    op: str,
    *,
    key: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    rekey: str | None = None,
) -> Change:
    return Change("s1.public.t1", op, key, before, after, rekey)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        pytest.param(change("c", after=NEW), "INSERT (556, 102, NSW)", id="insert"),
        pytest.param(change("u", after=NEW), "UPDATE (556, 102, NSW)", id="update"),
        pytest.param(
            change("d", key={"a": 555, "c": "NSW"}, before=OLD),
            "DELETE (555, NSW)",
            id="delete by key",
        ),
        pytest.param(change("d", before=OLD), "DELETE (555, NULL, NSW)", id="delete without key"),
        pytest.param(change("t"), "TRUNCATE", id="truncate"),
        pytest.param(change("d", before=OLD, rekey="old"), None, id="first half of a key change"),
        pytest.param(
            change("c", key={"a": 556, "c": "NSW"}, before=OLD, after=NEW, rekey="new"),
            "UPDATE (555, NSW) to (556, 102, NSW)",
            id="second half of a key change",
        ),
    ],
)
def test_a_record_reads_as_the_statement_it_means(record: Change, text: str | None) -> None:
    assert describe(record) == text
