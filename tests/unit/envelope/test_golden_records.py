"""The golden records beside the schemas: fastavro made them, the gateway must agree."""

from __future__ import annotations

import json
from importlib import resources
from io import BytesIO
from typing import Any

import fastavro
import pytest

import schemas
from gateway.core.lsn import Lsn
from gateway.core.records import PartitionOffsets, Writer
from gateway.core.watermark import LastCommit, Refusal, Watermark
from gateway.envelope import markers, progress
from gateway.envelope.envelope import EnvelopeEncoder, RowFormatEncoder, TransactionContext
from gateway.pgoutput.messages import LogicalMessage
from schemas.settings.tables import Envelope
from tests.unit.envelope.columns import T1

POSTGRES_EPOCH_US = 946_684_800_000_000
NAMES = sorted(
    entry.name.removesuffix(".avsc")
    for entry in resources.files(schemas).iterdir()
    if entry.name.endswith(".avsc")
)


def golden(name: str, suffix: str) -> str:
    return resources.files(schemas).joinpath(f"{name}.{suffix}").read_text(encoding="utf-8")


def golden_bytes(name: str) -> bytes:
    return bytes.fromhex(golden(name, "hex"))


def golden_datum(name: str) -> dict[str, Any]:
    datum: dict[str, Any] = json.loads(golden(name, "json"))
    if name == "message":  # bytes are written as Avro's JSON encoding does: a character a byte
        datum["content"] = datum["content"].encode("latin-1")
    return datum


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_datum_say_the_same_by_the_schema(name: str) -> None:
    out = BytesIO()

    fastavro.schemaless_writer(out, fastavro.parse_schema(schemas.load(name)), golden_datum(name))

    assert out.getvalue() == golden_bytes(name)


def encoder_of(
    kind: type[EnvelopeEncoder] = EnvelopeEncoder, envelope: Envelope | None = None
) -> EnvelopeEncoder:
    return kind(
        "public",
        "t1",
        T1,
        key=("a", "c"),
        identity=("a", "c"),
        replica_identity="d",
        indexes=(0, 1, 2),
        envelope=envelope or Envelope(),
    )


@pytest.mark.parametrize(
    ("name", "envelope"), [("envelope", Envelope()), ("envelope-debezium", Envelope("debezium"))]
)
def test_the_gateway_encodes_the_golden_envelope(name: str, envelope: Envelope) -> None:
    encoder = encoder_of(envelope=envelope)
    datum = golden_datum(name)
    source = datum["source"]
    context = TransactionContext(
        gateway=source["name"],
        db=source["db"],
        version=source["version"],
        xid=source["txId"],
        commit_lsn=source["commit_lsn"],
        commit_time=source["ts_ms"] * 1000 - POSTGRES_EPOCH_US,
        origin=None,
        snapshot="false",
        ts_ms=datum["ts_ms"],
    )

    value = encoder.value(
        b"u",
        encoder.encode_old((b"6", None, b"NSW")),
        encoder.encode_row((b"6", b"106", b"NSW")),
        encoder.begin(context),
        source["lsn"],
        source["seq"],
        datum["transaction"]["total_order"],
        datum["transaction"]["data_collection_order"],
    )

    assert value == golden_bytes(name)


def test_the_gateway_encodes_the_golden_row() -> None:
    encoder = encoder_of(RowFormatEncoder, Envelope("row"))

    before = encoder.encode_old((b"6", None, b"NSW"))
    value = encoder.value(
        b"d", before, None, (b"", None, b""), golden_datum("envelope-row")["__lsn"], 2, 1, 1
    )

    assert value == golden_bytes("envelope-row")


def test_the_gateway_encodes_the_golden_key() -> None:
    encoder = encoder_of()
    assert encoder.encode_key is not None
    assert encoder.encode_key((b"6", b"106", b"NSW")) == golden_bytes("envelope-key")


def test_the_gateway_encodes_the_golden_marker() -> None:
    datum = golden_datum("transaction")
    writer = Writer(**datum["writer"])

    assert markers.encode_writer(writer) + markers.encode_progress(
        datum["end_lsn"],
        timeline=datum["timeline"],
        commit_time=datum["commit_time"] - POSTGRES_EPOCH_US,
        offsets=[PartitionOffsets(**each) for each in datum["offsets"]],
    ) == golden_bytes("transaction")


def test_the_gateway_encodes_the_golden_message() -> None:
    datum = golden_datum("message")
    message = LogicalMessage(
        datum["transactional"], Lsn(datum["lsn"]), datum["prefix"], datum["content"]
    )

    encoded = markers.encode_message(
        message,
        commit_lsn=datum["commit_lsn"],
        xid=datum["xid"],
        seq=datum["seq"],
        ts_ms=datum["ts_ms"],
    )

    assert encoded == golden_bytes("message")


def test_the_gateway_encodes_the_golden_error() -> None:
    datum = golden_datum("error")
    filters = [(each["publication"], each["where"]) for each in datum.pop("filters")]

    assert markers.encode_error(filters=filters, **datum) == golden_bytes("error")


def test_the_gateway_encodes_the_golden_watermark() -> None:
    datum = golden_datum("progress")
    position = datum["position"]
    last = LastCommit(**position["last"])
    refusal = Refusal(**position["refusal"])
    watermark = Watermark(
        position["end_lsn"],
        position["timeline"],
        position["definitions"],
        (),
        last,
        refusal,
        position["schemas"],
    )
    key = progress.ProgressKey(**golden_datum("progress-key"))

    assert progress.encode_position(watermark) == golden_bytes("progress")
    assert progress.encode_key(key) == golden_bytes("progress-key")
