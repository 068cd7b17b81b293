r"""Escaping of untrusted text for terminals, logs and pages.

Rows, names and server messages may contain characters that move the cursor, recolour or rewrite the
screen, start a line that looks like ours, or reverse the reading order. They are shown as
``\uXXXX``, which in JSON text also denotes the character itself. All output for people goes through
here: `gateway.observe` for the log, `say` for commands, `as_html` for the page.
"""

from __future__ import annotations

import re
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Final, TextIO

__all__ = [
    "NOT_IN_A_LINE",
    "as_html",
    "as_word",
    "counted",
    "first_lines",
    "lines_shown",
    "said_if_slow",
    "say",
    "shown",
]

# C0 and C1, DEL; marks, embeddings, overrides and isolates of direction; line and paragraph
# separators; the byte order mark; halves of surrogate pairs, which no encoding takes.
_HIDDEN: Final = (
    r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e"
    r"\u2066-\u2069\ufeff\ud800-\udfff"
)
NOT_IN_A_LINE: Final = re.compile(f"[{_HIDDEN}]")
"""A character that acts instead of being seen."""
_NOT_IN_LINES: Final = re.compile(f"(?![\\n\\t])[{_HIDDEN}]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(text: object) -> str:
    """Return `text` for one line, with control characters escaped."""
    return NOT_IN_A_LINE.sub(_escaped, str(text))


def lines_shown(text: object) -> str:
    """Return text of several lines likewise; its own line feeds and tabs stay."""
    return _NOT_IN_LINES.sub(_escaped, str(text))


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which takes an `s` in the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_lines(text: str, most: int, rest: str) -> str:
    """Return the whole lines of a text that are at most `most` characters.

    If some are left out, `rest` is the last line.
    """
    if len(text) <= most:
        return text
    whole = text[: most + 1].rpartition("\n")[0]
    return f"{whole}\n{rest}" if whole else rest


def as_html(text: object) -> str:
    """Return `text` for a page or an attribute: as `shown`, with markup escaped."""
    return escape(shown(text))


def as_word(text: object) -> str:
    """Return one word of a command for a POSIX shell; for bash, where a character is escaped."""
    word = str(text)
    if NOT_IN_A_LINE.search(word) is None:
        return shlex.quote(word)
    return "$'" + shown(word.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def say(line: object = "", *, to: TextIO | None = None) -> None:
    """Print and flush one line, to standard output unless `to` is given."""
    print(shown(line), file=sys.stdout if to is None else to, flush=True)


@contextmanager
def said_if_slow(line: str, *, after_s: float = 2.0) -> Iterator[None]:
    """Say on standard error what a command does, unless the block ends within `after_s` seconds.

    A thread says it, since the block may be a single call of a server that takes long.
    """
    timer = threading.Timer(after_s, say, [line], {"to": sys.stderr})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"
