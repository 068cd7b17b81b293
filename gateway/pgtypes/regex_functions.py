r"""The functions that take regular expressions, on text that is UTF-8 in bytes.

Positions count characters, from 1. Options are those of the manual; g, where it is allowed, means
all matches.

Source: src/backend/utils/adt/regexp.c, varlena.c.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.regex import Match, Regex, Scan, compile_regex

__all__ = [
    "count",
    "instr",
    "like",
    "match",
    "replace",
    "replace_from",
    "split",
    "substr",
    "substring",
]


def _regex(pattern: bytes, options: bytes, function: str) -> Regex:
    """Compile the pattern for a function that does not take the option g."""
    letters = options.decode()
    if "g" in letters:
        compile_regex("", letters.replace("g", ""))  # a wrong option comes first, the pattern last
        raise EvaluationError(f'{function}() does not support the "global" option')
    return compile_regex(pattern.decode(), letters)


def _check(name: str, allowed: bool) -> None:
    if not allowed:
        raise EvaluationError(f'invalid value for parameter "{name}"')


def _matches(scan: Scan, at: int = 0) -> Iterator[Match]:
    """All matches from `at` on; after an empty one the search goes on one character further."""
    while at <= len(scan.text):
        found = scan.find(at)
        if found is None:
            return
        yield found
        at = found.end + (found.start == found.end)


def like(text: bytes, pattern: bytes, options: bytes = b"") -> bool:
    """``regexp_like``."""
    return _regex(pattern, options, "regexp_like").matches(text.decode())


def substring(text: bytes, pattern: bytes) -> bytes | None:
    """``substring(text FROM pattern)``: the first group, or the whole match if there is none."""
    regex = compile_regex(pattern.decode())
    found = Scan(regex, text.decode()).find(0)
    return None if found is None else _cut(text.decode(), found, min(regex.groups, 1))


def _cut(text: str, found: Match, group: int) -> bytes | None:
    span = found.span(group)
    return None if span is None else text[slice(*span)].encode()


def count(text: bytes, pattern: bytes, start: int = 1, options: bytes = b"") -> int:
    """``regexp_count``."""
    _check("start", start > 0)
    regex = _regex(pattern, options, "regexp_count")
    return sum(1 for _ in _matches(Scan(regex, text.decode(), captures=False), start - 1))


def _nth(scan: Scan, start: int, number: int) -> Match | None:
    for place, found in enumerate(_matches(scan, start - 1), 1):
        if place == number:
            return found
    return None


def instr(
    text: bytes,
    pattern: bytes,
    start: int = 1,
    number: int = 1,
    end: int = 0,
    options: bytes = b"",
    group: int = 0,
) -> int:
    """``regexp_instr``: where the match `number` or a group of it begins, or what follows it."""
    _check("start", start > 0)
    _check("n", number > 0)
    _check("endoption", end in (0, 1))
    _check("subexpr", group >= 0)
    regex = _regex(pattern, options, "regexp_instr")
    found = _nth(Scan(regex, text.decode(), captures=group > 0), start, number)
    if found is None or group > max(regex.groups, 1):
        return 0
    span = found.span(group if regex.groups else 0)
    return 0 if span is None else span[end] + 1


def substr(
    text: bytes,
    pattern: bytes,
    start: int = 1,
    number: int = 1,
    options: bytes = b"",
    group: int = 0,
) -> bytes | None:
    """``regexp_substr``: the match `number`, or a group of it."""
    _check("start", start > 0)
    _check("n", number > 0)
    _check("subexpr", group >= 0)
    regex = _regex(pattern, options, "regexp_substr")
    found = _nth(Scan(regex, text.decode(), captures=group > 0), start, number)
    if found is None or group > max(regex.groups, 1):
        return None
    return _cut(text.decode(), found, group if regex.groups else 0)


def match(text: bytes, pattern: bytes, options: bytes = b"") -> list[bytes | None] | None:
    """``regexp_match``: the groups of the first match, or all of it if there are no groups."""
    regex = _regex(pattern, options, "regexp_match")
    found = Scan(regex, text.decode()).find(0)
    if found is None:
        return None
    groups = range(1, regex.groups + 1) if regex.groups else range(1)
    return [_cut(text.decode(), found, group) for group in groups]


def split(text: bytes, pattern: bytes, options: bytes = b"") -> list[bytes]:
    """``regexp_split_to_array``: what stands between the matches.

    Empty matches at either end of the text, or right after another match, do not count.
    """
    scan = Scan(_regex(pattern, options, "regexp_split_to_array"), text.decode(), captures=False)
    parts, at, previous = [], 0, 0
    for found in _matches(scan):
        if found.start < len(scan.text) and found.end > previous:
            parts.append(scan.text[at : found.start].encode())
            at = found.end
        previous = found.end
    parts.append(scan.text[at:].encode())
    return parts


# Replacement


def replace(text: bytes, pattern: bytes, new: bytes, options: bytes = b"") -> bytes:
    """``regexp_replace`` of the first match, or of all with the option g."""
    if options[:1].isdigit():
        raise EvaluationError("invalid regular expression option")
    letters = options.decode()
    regex = compile_regex(pattern.decode(), letters.replace("g", ""))
    return _replace(regex, text, new, 1, 0 if "g" in letters else 1)


def replace_from(
    text: bytes,
    pattern: bytes,
    new: bytes,
    start: int,
    number: int | None = None,
    options: bytes = b"",
) -> bytes:
    """``regexp_replace`` from character `start` on: of the match `number`, or of all if it is 0."""
    _check("start", start > 0)
    _check("n", number is None or number >= 0)
    letters = options.decode()
    regex = compile_regex(pattern.decode(), letters.replace("g", ""))
    return _replace(regex, text, new, start, 1 if number is None else number)


def _replace(regex: Regex, text: bytes, new: bytes, start: int, number: int) -> bytes:
    pieces = _replacement(new.decode())
    scan = Scan(regex, text.decode(), captures=any(isinstance(p, int) and p for p in pieces))
    out, at = [], 0
    for place, found in enumerate(_matches(scan, start - 1), 1):
        if number and place != number:
            continue
        out.append(scan.text[at : found.start])
        for piece in pieces:
            span = None if isinstance(piece, str) else found.span(piece)
            out.append(piece if isinstance(piece, str) else scan.text[slice(*span or (0, 0))])
        at = found.end
        if number:
            break
    return "".join((*out, scan.text[at:])).encode()


def _replacement(text: str) -> list[str | int]:
    r"""Literal pieces, and the numbers of groups: 0 for ``\&``."""
    pieces: list[str | int] = []
    at = 0
    while at < len(text):
        slash = text.find("\\", at)
        if slash < 0:
            pieces.append(text[at:])
            break
        pieces.append(text[at:slash])
        after = text[slash + 1 : slash + 2]
        at = slash + 2
        if after and after in "123456789":
            pieces.append(int(after))
        elif after == "&":
            pieces.append(0)
        else:
            pieces.append("\\")
            if after != "\\":  # not an escape: the character stands for itself
                at -= 1
    return [piece for piece in pieces if piece != ""]
