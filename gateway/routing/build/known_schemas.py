"""Fingerprint of all tables' schemas, by which a start knows that the registry had them before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from gateway.core.watermark import Watermark
from gateway.definitions.model import Plan

__all__ = ["RequestSchemas", "fingerprint_of", "registered_before"]

RequestSchemas: TypeAlias = Callable[[Sequence[tuple[str, Mapping[str, Any]]]], None]
"""Asks the registry for the ids of many subjects and schemas."""


def fingerprint_of(subjects: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a fingerprint of subjects and their schemas, in any order; never empty."""
    texts = sorted(json.dumps([subject, schema]) for subject, schema in subjects)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def registered_before(plan: Plan, watermark: Watermark) -> str:
    """Return the fingerprint in `watermark`; empty if a table of `plan` is to be copied.

    A copy needs the ids at once, and a table whose schema is refused can be held only before that.
    """
    settled = {(c.subscription, c.schema, c.table) for c in watermark.copies if c.is_settled}
    for copy in plan.copies:
        table = plan.tables[copy.target_oid]
        if (copy.subscription, table.schema, table.name) not in settled:
            return ""
    return watermark.schemas
