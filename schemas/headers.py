"""The headers of records, as ``headers.toml`` declares them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Literal

__all__ = ["DEBEZIUM_HEADERS", "HEADERS", "Header"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One header; the beginning of ``headers.toml`` describes the attributes.

    Attributes:
        value: Value of a constant; empty for all others.
    """

    name: str
    scope: Literal["record", "transaction", "constant"]
    example: str
    meaning: str
    optional: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    value: str = ""


def _read() -> tuple[dict[str, Header], dict[str, str]]:
    text = resources.files("schemas").joinpath("headers.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return {one["name"]: Header(**one) for one in table["header"]}, table["debezium"]


HEADERS, DEBEZIUM_HEADERS = _read()
"""Headers by name, in the order in which records have them; and the meanings of those that only
Debezium's format has."""
