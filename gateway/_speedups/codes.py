"""Letters and numbers of instructions from Python to C, under the names that both sides use.

``tools/build_rows.py`` makes an enum of them, in ``declared.h``.
"""

from __future__ import annotations

from typing import Final

# How a column's text is read by a condition.
AS_BOOLEAN: Final = "b"
AS_INTEGER: Final = "i"
AS_FLOAT: Final = "f"
AS_DOUBLE: Final = "d"
AS_DECIMAL: Final = "n"
AS_WHOLE: Final = "w"  # an integer, kept as its digits
AS_DATE: Final = "a"
AS_TIMESTAMP: Final = "t"
AS_TIMESTAMPTZ: Final = "z"
AS_TEXT: Final = "s"
AS_BPCHAR: Final = "B"  # without its blanks at the end

# Conditions that are no comparisons.
ALL_OF: Final = "&"
ONE_OF: Final = "|"
NOT: Final = "!"
IS_NULL: Final = "0"

# How a value stands to a constant: a set of these.
LESS: Final = 1
EQUAL: Final = 2
GREATER: Final = 4
