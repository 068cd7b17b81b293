"""Source text of definitions: tokens with character offsets, parse errors with positions.

libpg_query counts UTF-8 bytes in its trees and tokens, and characters in its errors; all positions
that leave this module count characters from 0.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Final

import postgast
from postgast import pg_query_pb2 as pb

from gateway.core.errors import DefinitionError
from gateway.definitions.sql.grammar import parse

__all__ = ["SourceText", "Token"]

_COMMENTS: Final = frozenset({pb.SQL_COMMENT, pb.C_COMMENT})
_OPEN: Final = pb.ASCII_40
_CLOSE: Final = pb.ASCII_41


@dataclass(frozen=True, slots=True)
class Token:
    """Token with its grammar name and character range."""

    kind: int
    start: int
    end: int


def _of_later_grammar(text: str, position: int) -> tuple[str, str] | None:
    """Return message and hint for syntax of PostgreSQL 19 that the grammar of 18 rejects."""
    before = " ".join(text[:position].upper().split())
    word = text[position:].split(maxsplit=1)[0].upper() if text[position:].strip() else ""
    if before.endswith("FOR ALL TABLES") and word.startswith("EXCEPT"):
        return (
            "not supported in the definitions file: FOR ALL TABLES EXCEPT",
            "create the publication in the source database, and name it in the subscription",
        )
    listed = before.endswith("FOR ALL TABLES") and word.startswith(",")
    if listed or (before.endswith("FOR ALL") and word.startswith("SEQUENCES")):
        return (
            "not supported: FOR ALL SEQUENCES",
            "a sequence is not in the stream of changes: PostgreSQL copies its value when a "
            "subscription is refreshed; leave it out",
        )
    return None


class SourceText:
    """Parsed source text.

    Attributes:
        text: Text as given.
        tree: libpg_query's parse result.

    Raises:
        DefinitionError: the text is not valid SQL; in PostgreSQL's words, with the position.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._offsets = _byte_offsets(text)
        if "\0" in text:
            raise self.error("the definitions contain a zero byte", text.index("\0"))
        try:
            self.tree = parse(text)
            scanned = postgast.scan(text).tokens
        except postgast.PgQueryError as error:
            position = max(error.cursorpos - 1, 0)
            hint = None
            if error.message == "invalid publication object list":
                hint = (
                    "One of TABLE or TABLES IN SCHEMA must be specified before a standalone "
                    "table or schema name."
                )
            message = error.message
            if (later := _of_later_grammar(text, self.character(position))) is not None:
                message, hint = later
            raise DefinitionError(message, text=text, position=position, hint=hint) from None
        self._tokens = [
            Token(token.token, self.character(token.start), self.character(token.end))
            for token in scanned
            if token.token not in _COMMENTS
        ]
        self._starts = [token.start for token in self._tokens]

    def character(self, byte_offset: int) -> int:
        """Translate a byte offset of libpg_query into a character offset."""
        if self._offsets is None:
            return byte_offset
        return bisect_left(self._offsets, byte_offset)

    def first_token(self, byte_offset: int) -> int:
        """Return the start of the first token at or after `byte_offset` that is no comment."""
        index = bisect_left(self._starts, self.character(byte_offset))
        return self._starts[index] if index < len(self._starts) else len(self.text)

    def where_slice(self, byte_offset: int) -> tuple[int, int]:
        """Find the filter of the table whose name is at `byte_offset`.

        Returns:
            Start and end of the text between the parentheses of its WHERE, which it must have,
            without outer white space and comments.
        """
        index = bisect_left(self._starts, self.character(byte_offset))
        # WHERE is reserved, so the first one after the name is this table's own.
        while self._tokens[index].kind != pb.WHERE:
            index += 1
        first = index + 2
        last = index + 1
        depth = 0
        while True:
            kind = self._tokens[last].kind
            depth += (kind == _OPEN) - (kind == _CLOSE)
            if depth == 0:
                break
            last += 1
        return self._tokens[first].start, self._tokens[last - 1].end

    def after_where(self) -> str:
        """Return the text after the first WHERE of a query, without the final semicolon."""
        kinds = [token.kind for token in self._tokens]
        first = kinds.index(pb.WHERE) + 1
        last = len(kinds) - 1 - (kinds[-1] == pb.ASCII_59)
        return self.text[self._tokens[first].start : self._tokens[last].end]

    def error(self, message: str, position: int, *, hint: str | None = None) -> DefinitionError:
        """Return an error that points at `position`."""
        return DefinitionError(message, text=self.text, position=position, hint=hint)


def strip_locations(message: Any) -> None:
    """Clear all positions in a libpg_query tree, in place, so that layout has no effect."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in value if _is_repeated(value) else (value,):
                strip_locations(child)
        elif field.name in _POSITIONS:
            message.ClearField(field.name)


_POSITIONS: Final = frozenset(
    {
        "location",
        "stmt_location",
        "stmt_len",
        "rexpr_list_start",
        "rexpr_list_end",
        "list_start",
        "list_end",
    }
)


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "__len__") and not hasattr(value, "ListFields")


def _byte_offsets(text: str) -> list[int] | None:
    """Return the byte offsets of all characters and of the end; None for ASCII text."""
    if text.isascii():
        return None
    offsets = [0]
    for character in text:
        offsets.append(offsets[-1] + len(character.encode("utf-8", "surrogatepass")))
    return offsets
