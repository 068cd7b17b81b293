"""Reading COPY in C, from ``reading``. Only `gateway.source.copy.copy_out` uses it."""

from typing import Final

INTERFACE: Final[str]

def load(path: str, /) -> bool: ...
def read(pgconn_ptr: int, lines: list[bytes], most: int, bytes: int, wait_ms: int, /) -> int: ...
