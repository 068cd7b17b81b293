"""Keys and partitions by other columns for the tables of `tests.support.workloads.dml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.workloads import dml

TABLES = f"{dml.TABLES} ALTER TABLE keyed REPLICA IDENTITY FULL;"

# Without pc: see tests/fault/gateway/test_gateway_killed.py.
NATIVE = ("pa", "pb", "pd", "pe")

IDENTITIES: Mapping[str, Sequence[str]] = {
    "keyed": ("a",),
    "filtered": ("a", "b"),
    "whole": ("a",),
    "bag": (),
    "indexed": ("b",),
    "toasted": ("a",),
    "appended": (),
    "parted": ("a",),
}
"""Columns that identify a row; none where only all of them do, or nothing has to."""

KEYS = {"filtered": ("b",), "whole": ("c", "a"), "bag": ("b",), "appended": ("c", "a")}
"""Keys that rows share, that can be NULL, and one that identifies a row and can be NULL."""

PARTITION_BY = {
    "keyed": ("b",),
    "whole": ("b",),
    "bag": ("c", "b"),
    "filtered": ("a",),
    "appended": ("b",),
}
"""Partitions by columns of the key, of a chosen key, and by others beside the identity as key."""


def chosen(names: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """As ``[topics.keys]`` and ``[topics.partition_by]`` have them."""
    return {f"public.{table}": list(columns) for table, columns in names.items()}
