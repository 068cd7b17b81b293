"""Finding short transactions in C; the sources are in ``scanning``.

Only `gateway.transactions.assembler` uses it.
"""

from typing import Final

INTERFACE: Final[str]

def scan(frames: list[bytes], place: int, /) -> tuple[int, int, int]: ...
