"""Parser of untrusted SQL text: PostgreSQL's own (libpg_query), with a limit on nesting.

libpg_query writes the tree by unbounded recursion, so ``a::text::text...`` would crash the process;
protobuf reads at most a hundred levels. The nesting depth is therefore estimated before a text is
parsed, and a text near the first limit is refused, as max_stack_depth makes PostgreSQL refuse it.
"""

from __future__ import annotations

from typing import Any, Final

import postgast
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from postgast import pg_query_pb2 as pb

__all__ = ["TooDeepError", "column_words", "parse"]

_DEEPEST: Final = 1500
"""Maximum number of nested tokens. A thread's stack has room for six times as many, and protobuf
reads about thirty nested operators."""

_OPENING: Final = frozenset({pb.ASCII_40, pb.ASCII_91, pb.CASE})
_CLOSING: Final = frozenset({pb.ASCII_41, pb.ASCII_93, pb.END_P})
_FLAT: Final = frozenset(
    {pb.ASCII_44, pb.ASCII_59, pb.AND, pb.OR, pb.WHEN, pb.THEN, pb.ELSE, pb.SQL_COMMENT}
)
"""Separators of the items of a list."""


class TooDeepError(postgast.PgQueryError):  # type: ignore[misc]
    """Error of a text that is nested too deeply to be parsed."""

    def __init__(self) -> None:
        super().__init__("it is nested too deeply")


def parse(text: str) -> Any:
    """Return the parse tree of a text.

    Raises:
        TooDeepError: it is, or may be, nested too deeply.
        postgast.PgQueryError: it does not parse.
    """
    if len(text) > _DEEPEST and _depth(text) > _DEEPEST:
        raise TooDeepError
    try:
        return postgast.parse(text)
    except DecodeError:
        raise TooDeepError from None


def _depth(text: str) -> int:
    """Return an upper bound of the depth of a text's tree, in tokens."""
    outer: list[tuple[int, int]] = []
    # `deepest`: depth of the list's deepest item; `own`, `inner`: the item's tokens, and the depth
    # of its deepest bracket.
    deepest = own = inner = 0
    for token in postgast.scan(text).tokens:
        kind = token.token
        if kind in _OPENING:
            outer.append((deepest, own + 1))
            outer.append((inner, 0))
            deepest = own = inner = 0
        elif kind in _CLOSING and outer:
            found = max(deepest, own + inner)
            inner = max(outer.pop()[0], found)
            deepest, own = outer.pop()
        elif kind in _FLAT:
            deepest, own, inner = max(deepest, own + inner), 0, 0
        else:
            own += 1
    while outer:
        found = max(deepest, own + inner)
        inner = max(outer.pop()[0], found)
        deepest, own = outer.pop()
    return max(deepest, own + inner)


def column_words(expression: str) -> frozenset[str]:
    """Return the words of an expression that may be column names, whether or not it parses.

    Args:
        expression: Expression as PostgreSQL prints it, in which unquoted names are not reserved.

    Raises:
        postgast.PgQueryError: it cannot be split into tokens.
    """
    raw = expression.encode()
    tokens = postgast.scan(expression).tokens
    found = set()
    for index, token in enumerate(tokens):
        if token.token != pb.IDENT and token.keyword_kind != pb.UNRESERVED_KEYWORD:
            continue
        before = tokens[index - 1].token if index else None
        after = tokens[index + 1].token if index + 1 < len(tokens) else None
        if before in (pb.TYPECAST, pb.COLLATE) or after == pb.ASCII_40:
            continue
        word = raw[token.start : token.end].decode()
        found.add(word[1:-1].replace('""', '"') if word.startswith('"') else word)
    return frozenset(found)
