"""The headers of records, as ``headers.toml`` declares them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Final, Literal

__all__ = ["HEADERS", "Header"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One header; what each attribute means stands in the file.

    Attributes:
        value: Of a constant; empty for all others.
    """

    name: str
    scope: Literal["record", "transaction", "constant"]
    example: str
    meaning: str
    optional: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    value: str = ""


def _read() -> dict[str, Header]:
    text = resources.files("schemas").joinpath("headers.toml").read_text(encoding="utf-8")
    return {one["name"]: Header(**one) for one in tomllib.loads(text)["header"]}


HEADERS: Final = _read()
"""By name, in the order in which records have them."""
