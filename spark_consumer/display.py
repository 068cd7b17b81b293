r"""Text from elsewhere as a log, a terminal or a scraper may show it.

Names, rows, and texts of servers may hold characters that move the cursor, rewrite what is on the
screen, begin a line that looks like ours, or turn the order of what is read. They are shown as
``\uXXXX``. Every message of `spark_consumer.errors` goes through `shown`, and every argument of a
log line through `logger`. The gateway does the same by a function of its own; a test holds both
together, as the job may not import the gateway (decision 64).
"""

from __future__ import annotations

import logging
import re
import shlex
from typing import Final

__all__ = ["as_label", "as_word", "lines_shown", "logger", "shown"]

# C0 and C1, DEL; marks, embeddings, overrides and isolates of direction; line and paragraph
# separators; the byte order mark; halves of surrogate pairs, which no encoding takes.
_HIDDEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_OWN_LINES: Final = re.compile(r"(?![\n\t])" + _HIDDEN.pattern)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(text: object) -> str:
    """Return `text` for one line, without a character that acts instead of being seen."""
    return _HIDDEN.sub(_escaped, str(text))


def lines_shown(text: object) -> str:
    """Return text of several lines likewise; its own line feeds and tabs stay."""
    return _OWN_LINES.sub(_escaped, str(text))


def as_label(text: str) -> str:
    """Return the value of a label in Prometheus' text format, without its quotes."""
    return shown(text).replace("\\", "\\\\").replace('"', '\\"')


def as_word(text: str) -> str:
    """Return one word of a command for a POSIX shell; for bash, where a character is hidden."""
    if _HIDDEN.search(text) is None:
        return shlex.quote(text)
    return "$'" + shown(text.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def logger(name: str) -> logging.Logger:
    """Return a logger whose lines show their arguments; what is logged as a format is ours."""
    found = logging.getLogger(name)
    found.addFilter(_show_arguments)
    return found


def _show_arguments(record: logging.LogRecord) -> bool:
    given = record.args
    if isinstance(given, tuple):
        record.args = tuple(one if isinstance(one, int | float) else shown(one) for one in given)
    return True


def _escaped(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"
