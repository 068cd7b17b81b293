"""tsvector and tsquery.

Source: tsvectorsend and tsvectorout in tsvector.c, tsquerysend, tsqueryout and infix in tsquery.c.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from gateway.pgtypes.binary.info import ToText

__all__ = ["SEARCH"]

_COUNT: Final = Struct("!i")
_SHORT: Final = Struct("!H")

_WEIGHTS: Final = (b"", b"C", b"B", b"A")
"""The two highest bits of a position; D, the default, is not printed."""

_VALUE: Final = 1
_OPERATOR: Final = 2
_NOT, _AND, _OR, _PHRASE = 1, 2, 3, 4
_PRIORITY: Final = {_NOT: 4, _PHRASE: 3, _AND: 2, _OR: 1}


def _quoted(lexeme: bytes) -> bytes:
    return b"'%b'" % lexeme.replace(b"\\", b"\\\\").replace(b"'", b"''")


def tsvector(data: bytes) -> bytes:
    """Lexemes in quotes, with their positions and weights."""
    (count,) = _COUNT.unpack_from(data)
    at = 4
    shown: list[bytes] = []
    for _ in range(count):
        end = data.index(0, at)
        lexeme = _quoted(data[at:end])
        (size,) = _SHORT.unpack_from(data, end + 1)
        at = end + 3
        if size:
            positions = Struct(f"!{size}H").unpack_from(data, at)
            at += 2 * size
            lexeme += b":" + b",".join(
                [b"%d%b" % (position & 0x3FFF, _WEIGHTS[position >> 14]) for position in positions]
            )
        shown.append(lexeme)
    if at != len(data):
        raise ValueError("bytes left over")
    return b" ".join(shown)


def tsquery(data: bytes) -> bytes:
    """Operators between their operands, in as few brackets as it takes."""
    (count,) = _COUNT.unpack_from(data)
    if count == 0:
        if len(data) != 4:
            raise ValueError("bytes left over")
        return b""
    query = _Query(data)
    shown = query.infix(0, right_of_phrase=False)
    if query.at != len(data):
        raise ValueError("bytes left over")
    return shown


@dataclass(slots=True)
class _Query:
    """A cursor over the items: each operator before its right operand, and that before the left."""

    data: bytes
    at: int = field(default=4)

    def infix(self, parent_priority: int, *, right_of_phrase: bool) -> bytes:
        """Print the item at the cursor, with its operands."""
        kind = self.data[self.at]
        if kind == _VALUE:
            return self._operand()
        if kind != _OPERATOR:
            raise ValueError("an unknown item of a tsquery")
        operator = self.data[self.at + 1]
        self.at += 2
        priority = _PRIORITY.get(operator)
        if priority is None:
            raise ValueError("an unknown operator of a tsquery")
        if operator == _NOT:
            shown = b"!" + self.infix(priority, right_of_phrase=False)
            return b"( %b )" % shown if priority < parent_priority else shown
        sign = b"|" if operator == _OR else b"&"
        if operator == _PHRASE:
            (distance,) = _SHORT.unpack_from(self.data, self.at)
            self.at += 2
            sign = b"<->" if distance == 1 else b"<%d>" % distance
        right = self.infix(priority, right_of_phrase=operator == _PHRASE)
        left = self.infix(priority, right_of_phrase=False)
        shown = b"%b %b %b" % (left, sign, right)
        # "a <-> (b <-> c)" is not "a <-> b <-> c".
        if priority < parent_priority or (operator == _PHRASE and right_of_phrase):
            return b"( %b )" % shown
        return shown

    def _operand(self) -> bytes:
        weight, prefix = self.data[self.at + 1], self.data[self.at + 2]
        end = self.data.index(0, self.at + 3)
        shown = _quoted(self.data[self.at + 3 : end])
        self.at = end + 1
        if weight or prefix:
            shown += b":*" if prefix else b":"
            shown += bytes(
                [letter for bit, letter in zip((8, 4, 2, 1), b"ABCD", strict=True) if weight & bit]
            )
        return shown


SEARCH: Final[dict[tuple[str, str], ToText]] = {
    ("tsvectorout", "tsvectorsend"): tsvector,
    ("tsqueryout", "tsquerysend"): tsquery,
}
"""Output and send function -> conversion."""
