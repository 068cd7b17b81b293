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

from gateway.pgtypes import regex_functions, regex_similar
from gateway.pgtypes.arrays import Array, one_dimension
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.regex import Regex, UnsupportedRegexError, compile_regex
from gateway.rowfilter.expr import CollationUse, Operation, Value

__all__ = ["OPERATIONS"]

Constants = Mapping[int, Value]


def _compiled(pattern: bytes, options: str = "") -> Regex:
    return compile_regex(pattern.decode(), options)


def _strings(value: Value) -> Iterator[bytes]:
    """The patterns that a constant holds: one, or those of an array."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, Array):
        yield from (item for item in value.items if item is not None)


def _specialize(
    constants: Constants, operation: Callable[[], Operation], options: str, options_at: int | None
) -> Operation | str:
    """`operation` with what the patterns, which are argument 1, ask of the collation.

    `options` always hold; those that argument `options_at` has come after them.
    """
    found = operation()
    if 1 not in constants:
        return "the pattern must be a constant"
    if options_at is not None:
        if options_at not in constants:
            return "the options must be a constant"
        options += "".join(option.decode() for option in _strings(constants[options_at]))
    uses_ctype = False
    for pattern in _strings(constants[1]):
        try:
            uses_ctype |= _compiled(pattern, options.replace("g", "")).uses_ctype
        except UnsupportedRegexError as error:
            return f"the regular expression cannot be reproduced, {error}"
        except EvaluationError:
            found = replace(found, can_raise=True)
    return replace(found, collation=CollationUse.CTYPE if uses_ctype else CollationUse.EQUALITY)


# Operators


def _matches(text: bytes, pattern: bytes, *, options: str, positive: bool) -> bool:
    return _compiled(pattern, options).matches(text.decode()) is positive


def _prepare_match(
    constants: Constants, *, options: str, positive: bool
) -> Callable[[bytes], bool] | None:
    pattern = constants.get(1)
    if not isinstance(pattern, bytes):
        return None
    try:
        matches = _compiled(pattern, options).matches
    except EvaluationError:
        return None
    if positive:
        return lambda text: matches(text.decode())
    return lambda text: not matches(text.decode())


def _match(name: str, *, options: str, positive: bool) -> Operation:
    return Operation(
        name,
        partial(_matches, options=options, positive=positive),
        collation=CollationUse.CTYPE,
        prepare=partial(_prepare_match, options=options, positive=positive),
        specialize=partial(
            _specialize,
            operation=partial(_match, name, options=options, positive=positive),
            options=options,
            options_at=None,
        ),
    )


# Functions


def _function(
    name: str,
    function: Callable[..., Value],
    options_at: int | None = None,
    *,
    nullable: bool = False,
) -> Operation:
    return Operation(
        name,
        function,
        can_raise=True,
        nullable=nullable,
        collation=CollationUse.CTYPE,
        specialize=partial(
            _specialize,
            operation=partial(_function, name, function, options_at, nullable=nullable),
            options="",
            options_at=options_at,
        ),
    )


def _match_array(text: bytes, pattern: bytes, options: bytes = b"") -> Array | None:
    found = regex_functions.match(text, pattern, options)
    return None if found is None else one_dimension(found)


def _split_array(text: bytes, pattern: bytes, options: bytes = b"") -> Array:
    return one_dimension(regex_functions.split(text, pattern, options))


def _functions() -> list[Operation]:
    like, count, instr = regex_functions.like, regex_functions.count, regex_functions.instr
    substr = regex_functions.substr
    new, new_from = regex_functions.replace, regex_functions.replace_from
    return [
        _function("regexp_like_no_flags", like),
        _function("regexp_like", like, 2),
        _function("regexp_count_no_start", count),
        _function("regexp_count_no_flags", count),
        _function("regexp_count", count, 3),
        _function("regexp_instr_no_start", instr),
        _function("regexp_instr_no_n", instr),
        _function("regexp_instr_no_endoption", instr),
        _function("regexp_instr_no_flags", instr),
        _function("regexp_instr_no_subexpr", instr, 5),
        _function("regexp_instr", instr, 5),
        _function("regexp_substr_no_start", substr, nullable=True),
        _function("regexp_substr_no_n", substr, nullable=True),
        _function("regexp_substr_no_flags", substr, nullable=True),
        _function("regexp_substr_no_subexpr", substr, 4, nullable=True),
        _function("regexp_substr", substr, 4, nullable=True),
        _function("textregexsubstr", regex_functions.substring, nullable=True),
        _function("regexp_match_no_flags", _match_array, nullable=True),
        _function("regexp_match", _match_array, 2, nullable=True),
        _function("regexp_split_to_array_no_flags", _split_array),
        _function("regexp_split_to_array", _split_array, 2),
        _function("textregexreplace_noopt", new),
        _function("textregexreplace", new, 3),
        _function("textregexreplace_extended_no_n", new_from),
        _function("textregexreplace_extended_no_flags", new_from),
        _function("textregexreplace_extended", new_from, 5),
    ]


# SIMILAR TO


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


def _substring_similar(text: bytes, pattern: bytes, escape: bytes) -> bytes | None:
    return regex_functions.substring(text, regex_similar.similar_to_escape(pattern, escape))


def _specialize_substring(constants: Constants) -> Operation | str:
    found = _similar("similar_to_escape_2")
    inner = {place - 1: value for place, value in constants.items() if place > 0}
    reason = _specialize_similar(inner, lambda: found)
    if isinstance(reason, str):
        return reason
    pattern: Value = None
    if None not in inner.values():
        try:
            pattern = regex_similar.similar_to_escape(*_strings(inner[0]), *_strings(inner[1]))
        except EvaluationError as error:
            return error.message  # it is written in SQL, so that this part is folded by itself
    return _specialize({1: pattern}, _sql_substring, "", None)


def _sql_substring() -> Operation:
    """``substring(text SIMILAR pattern ESCAPE escape)``."""
    return Operation(
        "substring(text,text,text)",
        _substring_similar,
        can_raise=True,
        nullable=True,
        collation=CollationUse.CTYPE,
        specialize=_specialize_substring,
    )


OPERATIONS: Final[Sequence[Operation]] = (
    *(
        _match(
            f"{kind}{folds}regex{suffix}",
            options="i" if folds else "",
            positive=suffix == "eq",
        )
        for kind in ("text", "name")
        for folds in ("", "ic")
        for suffix in ("eq", "ne")
    ),
    *_functions(),
    _similar("similar_to_escape_1"),
    _similar("similar_to_escape_2"),
    _similar("similar_escape"),
    _sql_substring(),
)
