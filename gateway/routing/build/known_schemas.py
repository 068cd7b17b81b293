"""Fingerprint of all tables' schemas, by which a start knows that the registry had them before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = ["RequestSchemas", "fingerprint_of"]

RequestSchemas: TypeAlias = Callable[[Sequence[tuple[str, Mapping[str, Any]]]], None]
"""Asks the registry for the ids of many subjects and schemas."""


def fingerprint_of(subjects: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a fingerprint of subjects and their schemas, in any order; never empty."""
    texts = sorted(json.dumps([subject, schema]) for subject, schema in subjects)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
