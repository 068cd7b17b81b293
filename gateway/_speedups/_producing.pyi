"""Producing in C, from ``producing``. Only `gateway.sink.delivery.batches` uses it."""

from typing import Final, final

from gateway.core.records import Record

INTERFACE: Final[str]

@final
class Batches:
    def produce(self, records: list[Record], first: int, end: int, /) -> tuple[int, int]: ...

def load(path: str, /) -> bool: ...
def places(records: list[Record], /) -> dict[tuple[str, int], tuple[int, int, int]]: ...
def pop() -> Batches | None: ...
