"""Reading COPY in C; the sources are in ``reading``. Only `gateway.source.lines` uses it."""

from typing import Final

INTERFACE: Final[int]

def load(path: str, /) -> bool: ...
def read(pgconn_ptr: int, lines: list[bytes], most: int, bytes: int, wait_ms: int, /) -> int: ...
