"""Names of database objects in SQL that a person is shown, and may run. Pure.

Other roles choose the names of their tables, schemas and columns: as they are, they could be a
statement of their own.
"""

from __future__ import annotations

import re
from typing import Final

import postgast
from postgast import pg_query_pb2 as pb

__all__ = ["quote_identifier"]

_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_UNQUOTED: Final = frozenset({pb.KeywordKind.NO_KEYWORD, pb.KeywordKind.UNRESERVED_KEYWORD})


def quote_identifier(name: str) -> str:
    """Return a name as SQL has it: in quotes, unless it reads the same without.

    Source: quote_identifier in PostgreSQL's ruleutils.c, which is the function quote_ident.
    """
    if _PLAIN.fullmatch(name) and postgast.scan(name).tokens[0].keyword_kind in _UNQUOTED:
        return name
    return '"' + name.replace('"', '""') + '"'
