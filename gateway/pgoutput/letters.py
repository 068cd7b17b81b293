"""Letters of the replication protocol that are read both here and in C.

``tools/build_rows.py`` makes an enum of them, in ``declared.h``.
"""

from __future__ import annotations

from typing import Final

FRAME_XLOGDATA: Final = "w"

# Messages of pgoutput.
TAG_BEGIN: Final = "B"
TAG_COMMIT: Final = "C"
TAG_INSERT: Final = "I"
TAG_UPDATE: Final = "U"
TAG_DELETE: Final = "D"

# Tuples in a change: the new row, the old row's key, the old row.
TUPLE_NEW: Final = "N"
TUPLE_KEY: Final = "K"
TUPLE_OLD: Final = "O"

# Values in a tuple.
VALUE_TEXT: Final = "t"
VALUE_NULL: Final = "n"
VALUE_UNCHANGED: Final = "u"  # a TOASTed value that was not sent
