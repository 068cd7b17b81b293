"""A jsonpath on a jsonb document: does it exist, does it match, what does it find.

Source: src/backend/utils/adt/jsonpath_exec.c.
"""

from __future__ import annotations

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import Json, Jsonb
from gateway.pgtypes.jsonpath import JsonPath, Step
from gateway.pgtypes.jsonpath_steps import ERROR, OK, Execution

__all__ = ["exists", "find", "matches"]


def exists(
    document: Jsonb, path: JsonPath, variables: Jsonb | None = None, silent: bool = False
) -> bool | None:
    """jsonb_path_exists(); with `silent` ``@?``. None after an error that was suppressed.

    Raises:
        EvaluationError: an error that is not suppressed.
    """
    execution, root = _execution(document, path, variables, silent)
    if path.strict:  # all results are needed, to be sure that there is no error among them
        items: list[Json] = []
        outcome = execution.execute(root, document.value, items)
        return None if outcome is ERROR else bool(items)
    outcome = execution.execute(root, document.value, None)
    return None if outcome is ERROR else outcome is OK


def find(
    document: Jsonb, path: JsonPath, variables: Jsonb | None = None, silent: bool = False
) -> list[Json]:
    """All items that the path leads to, up to an error that was suppressed.

    Raises:
        EvaluationError: an error that is not suppressed.
    """
    execution, root = _execution(document, path, variables, silent)
    items: list[Json] = []
    execution.execute(root, document.value, items)
    return items


def matches(
    document: Jsonb, path: JsonPath, variables: Jsonb | None = None, silent: bool = False
) -> bool | None:
    """jsonb_path_match(); with `silent` ``@@``. None for null, and for no single truth value.

    Raises:
        EvaluationError: an error that is not suppressed.
    """
    items = find(document, path, variables, silent)
    if len(items) == 1 and (items[0] is None or isinstance(items[0], bool)):
        return items[0]
    if not silent:
        raise EvaluationError("single boolean result is expected")
    return None


def _execution(
    document: Jsonb, path: JsonPath, variables: Jsonb | None, silent: bool
) -> tuple[Execution, Step]:
    values = {} if variables is None else variables.value
    if not isinstance(values, dict):
        raise EvaluationError('"vars" argument is not an object')
    assert path.root is not None, "an unsupported path is refused before"
    return Execution(document.value, values, lax=not path.strict, throws=not silent), path.root
