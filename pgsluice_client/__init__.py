"""Client for readers of topics: whole transactions in commit order, and the rows of tables.

`Reader` and `AsyncReader` read one subscription's topics, `TableRows` keeps the rows of a table as
PostgreSQL has them, and a `Position` says where to continue. A record passes through `reader`,
which alone does I/O (`asynchronous` runs it in a thread), `assembly`, which finds whole
transactions by the markers and sorts them by `places`, and `decoding` with `values`, which makes a
`changes.Change` of it; `rows` and `keys` apply that. The client knows the gateway by the topics and
by ``schemas/`` alone; see docs/reading.md.
"""

from pgsluice_client.asynchronous import AsyncReader
from pgsluice_client.changes import Change, Column, CopyState, Row, Transaction
from pgsluice_client.errors import (
    LostRecordsError,
    ReadError,
    UnavailableError,
    UnsupportedTopicError,
)
from pgsluice_client.position import Position
from pgsluice_client.reader import Reader
from pgsluice_client.rows import TableRows

__all__ = [
    "AsyncReader",
    "Change",
    "Column",
    "CopyState",
    "LostRecordsError",
    "Position",
    "ReadError",
    "Reader",
    "Row",
    "TableRows",
    "Transaction",
    "UnavailableError",
    "UnsupportedTopicError",
]
