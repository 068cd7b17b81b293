"""Decoding of untrusted records: validated first, then decoded by the writer's schema.

Anybody with access may write to a topic. A record is therefore data: its size, its schema's id and
every length in it are checked before memory is allocated for what it claims to hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import to_parsing_canonical_form

from gateway.core.errors import ProtocolError
from gateway.core.watermark import EPOCH_US
from gateway.envelope.bounds import MOST_VALUES, DatumBounds
from gateway.envelope.datums import parsed_schema
from gateway.pgtypes.binary import datetimes
from gateway.sink.registry.registry import Registry

__all__ = ["WIRE_BYTES", "LackingSchemaError", "RegisteredSchemas", "decode_as", "unframed"]

WIRE_BYTES: Final = 5
"""Header of Confluent's wire format: 0, then the schema's id in four bytes."""
_MOST_SCHEMAS: Final = 256
"""Maximum number of ids that one reader asks for. A topic has a few; more are an attack."""
_LONGEST_SCHEMA: Final = 4 << 20
_LONGEST_REASON: Final = 300
"""Maximum length of fastavro's message about a record: for mismatched schemas it quotes both."""
_OURS: Final = "pgsluice-"
_EPOCH_DAYS: Final = 10_957
_TIMES: Final[Mapping[tuple[str, str], tuple[Callable[[bytes], bytes], int, int]]] = {
    ("int", "date"): (datetimes.date, 4, _EPOCH_DAYS),
    ("long", "time-micros"): (datetimes.time, 8, 0),
    ("long", "local-timestamp-micros"): (datetimes.timestamp, 8, EPOCH_US),
    ("long", "timestamp-micros"): (datetimes.timestamptz, 8, EPOCH_US),
}
"""Logical types whose Python types lack some of PostgreSQL's values, or print them otherwise: how
PostgreSQL's binary format reads, its size, and the difference of the epochs."""


class LackingSchemaError(ProtocolError):
    """The registry has returned no schema for a record, which may be one of ours all the same."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Schema as it is parsed, and the bounds of its data."""

    schema: Any
    bounds: DatumBounds


@dataclass(frozen=True, slots=True)
class _Refused:
    """Schema that is not used, with the reason.

    Attributes:
        is_lacking: Whether the registry has not returned it.
    """

    reason: str
    is_lacking: bool = False


def unframed(wire: bytes | str | None) -> tuple[int, bytes]:
    """Return the schema's id and the Avro bytes of a record in Confluent's wire format.

    Raises:
        ProtocolError: it is not in that format.
    """
    if not isinstance(wire, bytes) or len(wire) < WIRE_BYTES or wire[0] != 0:
        raise ProtocolError("not in Confluent's wire format", tag=b"", offset=0)
    return int.from_bytes(wire[1:WIRE_BYTES]), wire[WIRE_BYTES:]


class RegisteredSchemas:
    """Decoder by a registry's schemas, each asked for once, whether or not it is refused.

    Args:
        registry: Registry with the schemas.
        longest: Maximum total length of the schemas; parsed, they take up to 25 times as much.
        most_values: Maximum number of values of a record.
    """

    def __init__(
        self, registry: Registry, *, longest: int = 16 << 20, most_values: int = MOST_VALUES
    ) -> None:
        self._registry = registry
        self._longest = longest
        self._most_values = most_values
        self._equal: dict[tuple[int, str], bool] = {}
        self._found: dict[int, _Known | _Refused] = {}
        self._characters = 0

    def decode(self, wire: bytes | str | None, name: str | None = None) -> dict[str, Any]:
        """Return the datum of a record, as the schema `name` of ``schemas/`` reads it.

        With `name` None it is read as it was written, with dates and timestamps as PostgreSQL
        prints them.

        Raises:
            LackingSchemaError: its schema is not known.
            ProtocolError: it is not a record of such a schema.
            TransientError: the registry cannot be reached.
            FatalError: the registry refuses the request.
        """
        number, data = unframed(wire)
        known = self._known(number)
        return _datum(data, known, known.schema if name is None else parsed_schema(name))

    def has_schema(self, wire: bytes | str | None, name: str) -> bool:
        """Return whether a record that was decoded, or refused, is by the schema `name`.

        If so, `decode_as` reads the same from it.
        """
        number, _ = unframed(wire)
        found = self._found.get(number)
        if not isinstance(found, _Known):
            return False
        if (number, name) not in self._equal:
            own = to_parsing_canonical_form(parsed_schema(name))
            self._equal[number, name] = own == _canonical(found.schema)
        return self._equal[number, name]

    def lacks_schema(self, wire: bytes | str | None) -> bool:
        """Ask the registry whether it lacks the schema of a record.

        Unlike `decode`, it asks also if the topic has too many schemas.

        Raises:
            TransientError, FatalError: as for `decode`.
        """
        number, _ = unframed(wire)
        return not self._registry.find_text(number)

    def _known(self, number: int) -> _Known:
        found = self._found.get(number)
        if found is None:
            if len(self._found) >= _MOST_SCHEMAS:
                raise LackingSchemaError("the topic has too many schemas", tag=b"", offset=0)
            found = self._found[number] = self._fetch(number)
        if isinstance(found, _Refused):
            kind = LackingSchemaError if found.is_lacking else ProtocolError
            raise kind(found.reason, tag=b"", offset=0)
        return found

    def _fetch(self, number: int) -> _Known | _Refused:
        """Return the schema, or why there is none."""
        text = self._registry.find_text(number)
        if text is None:
            return _Refused(f"the registry has no schema {number}", is_lacking=True)
        if not text:
            return _Refused(f"schema {number} does not parse: it is not there", is_lacking=True)
        if len(text) > _LONGEST_SCHEMA:
            return _Refused(f"schema {number} is too long")
        self._characters += len(text)
        if self._characters > self._longest:
            return _Refused("the topic's schemas are too long", is_lacking=True)
        try:
            schema = fastavro.parse_schema(_shown(json.loads(text)))
            return _Known(schema, DatumBounds(schema, most_values=self._most_values))
        except ProtocolError as error:
            return _Refused(f"schema {number} does not parse: {error.reason}")
        except Exception as error:  # as above
            return _Refused(f"schema {number} does not parse: {type(error).__name__}")


def decode_as(
    wire: bytes | str | None, name: str, *, most_values: int = MOST_VALUES
) -> dict[str, Any]:
    """Return the datum of a record that was written by the schema `name` of ``schemas/``.

    The schema's id is not looked at, and no registry is needed. `most_values` is the maximum number
    of its values.

    Raises:
        ProtocolError: the bytes are not a datum of it.
    """
    _, data = unframed(wire)
    known = _own(name, most_values)
    return _datum(data, known, known.schema)


@cache
def _own(name: str, most_values: int) -> _Known:
    schema = parsed_schema(name)
    return _Known(schema, DatumBounds(schema, most_values=most_values))


def _canonical(schema: Any) -> str:
    """Return Avro's canonical form of a schema; empty if it has none, though it was parsed."""
    try:
        return to_parsing_canonical_form(schema)
    except Exception:  # of fastavro, which has no class for all of them
        return ""


def _datum(data: bytes, written: _Known, reader: Any) -> dict[str, Any]:
    try:
        written.bounds.check(data)
        datum = fastavro.schemaless_reader(BytesIO(data), written.schema, reader)
    except ProtocolError:
        raise
    except Exception as error:  # of fastavro, or of an invalid schema
        why = f"{type(error).__name__}: {str(error)[:_LONGEST_REASON]}"
        raise ProtocolError(why, tag=b"", offset=0) from None
    if not isinstance(datum, dict):
        raise ProtocolError("not a record", tag=b"", offset=0)
    return datum


def _shown(schema: Any) -> Any:
    """Return a schema whose dates and timestamps are read as text; see `_TIMES`."""
    if isinstance(schema, list):
        return [_shown(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _shown(one) for name, one in schema.items()}
    kind = (schema.get("type"), schema.get("logicalType"))
    if isinstance(kind[0], str) and isinstance(kind[1], str) and kind in _TIMES:
        found["logicalType"] = _OURS + kind[1]
    return found


def _as_text(show: Callable[[bytes], bytes], size: int, epoch: int) -> Callable[..., str]:
    """Return a reader of a logical type for fastavro."""
    infinite = {(1 << 8 * size - 1) - 1, -(1 << 8 * size - 1)}

    def read(number: int, *_: object) -> str:
        return show(
            (number if number in infinite else number - epoch).to_bytes(size, signed=True)
        ).decode("ascii")

    return read


for (_kind, _logical), _read in _TIMES.items():
    LOGICAL_READERS[f"{_kind}-{_OURS}{_logical}"] = _as_text(*_read)
