"""Quoting of database object names in SQL that is shown to people, who may run it. Pure.

Other roles choose the names of their tables, schemas and columns: unquoted, a name could contain a
statement of its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import postgast
from postgast import pg_query_pb2 as pb

from gateway.core.display import NOT_IN_A_LINE

__all__ = ["one_line", "quote_identifier"]

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_UNQUOTED: Final = frozenset({pb.KeywordKind.NO_KEYWORD, pb.KeywordKind.UNRESERVED_KEYWORD})
_QUOTED: Final = re.compile(
    r"""(?<![\w$])[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*\"""", re.DOTALL
)


@lru_cache(4096)  # the schema's name comes again with each of its tables
def quote_identifier(name: str) -> str:
    """Return `name` as an SQL identifier, in quotes if it needs them.

    Source: quote_identifier in PostgreSQL's ruleutils.c, which is the function quote_ident.
    """
    if _PLAIN.fullmatch(name) and postgast.scan(name).tokens[0].keyword_kind in _UNQUOTED:
        return name
    return '"' + name.replace('"', '""') + '"'


def one_line(statement: str) -> str:
    """Return a statement that does the same, and has no character that acts when it is printed.

    Line breaks and the like within names and strings become Unicode escapes, so that the statement
    can be run as it is shown.

    Args:
        statement: With names as quote_ident and strings as quote_literal write them.
    """
    return _QUOTED.sub(_with_escapes, statement)


def _with_escapes(found: re.Match[str]) -> str:
    text = found[0]
    if NOT_IN_A_LINE.search(text) is None:
        return text
    if text[0] == '"':
        return "U&" + _escaped(text.replace("\\", "\\\\"), "\\")
    if text[0] == "'":
        text = "E" + text.replace("\\", "\\\\")
    return _escaped(text, "\\u")


def _escaped(text: str, mark: str) -> str:
    return NOT_IN_A_LINE.sub(lambda found: f"{mark}{ord(found[0]):04x}", text)
