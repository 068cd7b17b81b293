r"""Regular expressions, and SIMILAR TO, which PostgreSQL turns into them.

Whether a pattern can be reproduced, and what it asks of the collation, is known only when it is:
so it must be constant. ``[0-9]`` compares code points and is the same everywhere; ``\d``, ``\w``
and case are the collation's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from gateway.pgtypes import regex_similar
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.regex import Regex, UnsupportedRegexError, compile_regex
from gateway.rowfilter.expr import CollationUse, Operation, Value

__all__ = ["OPERATIONS"]

Constants = Mapping[int, Value]


def _compiled(pattern: bytes, *, folds: bool) -> Regex:
    return compile_regex(pattern.decode(), "i" if folds else "")


def _matches(text: bytes, pattern: bytes, *, folds: bool, positive: bool) -> bool:
    return _compiled(pattern, folds=folds).matches(text.decode()) is positive


def _strings(value: Value) -> Iterator[bytes]:
    """The patterns that a constant holds: one, or those of an array."""
    if isinstance(value, bytes):
        yield value
    elif value is not None:
        for item in value if isinstance(value, tuple) else getattr(value, "items", ()):
            if item is not None:
                yield item


def _specialize(
    constants: Constants,
    operation: Callable[[], Operation],
    compile_pattern: Callable[[bytes], Regex],
) -> Operation | str:
    """`operation` with what the patterns, which are argument 1, ask of the collation."""
    found = operation()
    if 1 not in constants:
        return "the pattern must be a constant"
    uses_ctype = False
    for pattern in _strings(constants[1]):
        try:
            uses_ctype |= compile_pattern(pattern).uses_ctype
        except UnsupportedRegexError as error:
            return f"the regular expression cannot be reproduced, {error}"
        except EvaluationError:
            found = replace(found, can_raise=True)
    return replace(found, collation=CollationUse.CTYPE if uses_ctype else CollationUse.EQUALITY)


def _prepare_match(
    constants: Constants, *, folds: bool, positive: bool
) -> Callable[[bytes], bool] | None:
    pattern = constants.get(1)
    if not isinstance(pattern, bytes):
        return None
    try:
        matches = _compiled(pattern, folds=folds).matches
    except EvaluationError:
        return None
    if positive:
        return lambda text: matches(text.decode())
    return lambda text: not matches(text.decode())


def _match(name: str, *, folds: bool, positive: bool) -> Operation:
    return Operation(
        name,
        partial(_matches, folds=folds, positive=positive),
        collation=CollationUse.CTYPE,
        prepare=partial(_prepare_match, folds=folds, positive=positive),
        specialize=partial(
            _specialize,
            operation=partial(_match, name, folds=folds, positive=positive),
            compile_pattern=partial(_compiled, folds=folds),
        ),
    )


def _specialize_similar(
    constants: Constants, operation: Callable[[], Operation]
) -> Operation | str:
    found = operation()
    if not all(place in constants for place in range(2 if found.name[-1] != "1" else 1)):
        return "the pattern must be a constant"
    arguments = [value for value in constants.values() if isinstance(value, bytes)]
    try:
        if len(arguments) == len(constants) and not regex_similar.versions_agree(*arguments):
            return "releases of PostgreSQL differ on brackets within brackets"
    except EvaluationError:
        pass
    return found


def _similar_escape(pattern: bytes | None, escape: bytes | None) -> bytes | None:
    if pattern is None:
        return None
    return regex_similar.similar_to_escape(pattern, b"\\" if escape is None else escape)


def _similar(name: str) -> Operation:
    strict = name != "similar_escape"
    return Operation(
        name,
        regex_similar.similar_to_escape if strict else _similar_escape,
        can_raise=True,
        strict=strict,
        specialize=partial(_specialize_similar, operation=partial(_similar, name)),
    )


OPERATIONS: Final[Sequence[Operation]] = (
    *(
        _match(f"{kind}{folds}regex{suffix}", folds=bool(folds), positive=suffix == "eq")
        for kind in ("text", "name")
        for folds in ("", "ic")
        for suffix in ("eq", "ne")
    ),
    _similar("similar_to_escape_1"),
    _similar("similar_to_escape_2"),
    _similar("similar_escape"),
)
