"""Client for readers of topics: whole transactions in commit order, and the rows of tables.

`Reader` and `AsyncReader` read one subscription's topics, `TableRows` keeps the rows of a table as
PostgreSQL has them, and a `Position` says where to continue. `assembly`, `decoding`, `values`,
`keys` and `rows` are pure; `reader` alone does I/O, and `asynchronous` runs it in a thread. It
knows the gateway by the topics and by ``schemas/`` alone; see docs/reading.md.
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
