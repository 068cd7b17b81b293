"""What the types with an order have in common beside operators: comparison, and picking one."""

from __future__ import annotations

from typing import Any

__all__ = ["compare", "larger", "smaller"]


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1."""
    return int(left > right) - int(left < right)


def larger(left: Any, right: Any) -> Any:
    """The larger one; of two equal ones, which may differ in scale, the second."""
    return left if left > right else right


def smaller(left: Any, right: Any) -> Any:
    """The smaller one; of two equal ones, which may differ in scale, the second."""
    return left if left < right else right
