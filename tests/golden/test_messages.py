"""What real servers sent, decoded, compared with what SQL said, and encoded again."""

from __future__ import annotations

import dataclasses
import json
import re
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from gateway.core.errors import ProtocolError
from gateway.pgoutput.decoder import Decoder
from gateway.pgoutput.messages import (
    BinaryValue,
    Insert,
    Message,
    Relation,
    StreamStart,
    StreamStop,
    Unchanged,
)
from tests.support.models.pgoutput_encode import encode_message

FOLDER = Path(__file__).parent
CASES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("*/*.hex"))
ALL_CASES = pytest.mark.parametrize("case", CASES)


@cache
def options(case: str) -> dict[str, str]:
    text = (FOLDER / f"{case}.hex").read_text(encoding="utf-8")
    found = re.search(r"^# pgoutput: (.*)$", text, re.MULTILINE)
    assert found is not None
    parsed: dict[str, str] = json.loads(found[1])
    return parsed


@cache
def captured(case: str) -> tuple[bytes, ...]:
    """The messages of a case: separated by empty lines, comments behind ``#``."""
    text = (FOLDER / f"{case}.hex").read_text(encoding="utf-8")
    bare = re.sub(r" *#.*", "", text)
    blocks = (bytes.fromhex(block) for block in re.split(r"\n\s*\n", bare))
    return tuple(block for block in blocks if block)


def expected(case: str) -> list[tuple[str, dict[str, Any]]]:
    parsed: list[tuple[str, dict[str, Any]]] = json.loads(
        (FOLDER / f"{case}.json").read_text(encoding="utf-8")
    )
    return parsed


def decoder_of(case: str) -> Decoder:
    streaming = options(case).get("streaming")
    version = int(options(case)["proto_version"])
    return Decoder(version, parallel_streaming=streaming == "parallel")


def decoded(case: str) -> list[Message]:
    decoder = decoder_of(case)
    return [decoder.decode(data) for data in captured(case)]


def plain(value: Any) -> Any:
    """The form that a value has in the JSON files."""
    if isinstance(value, Unchanged):
        return {"unchanged": True}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BinaryValue):
        return {"binary": value.hex()}
    if isinstance(value, bytes):
        return value.decode()
    if dataclasses.is_dataclass(value):
        fields = [plain(getattr(value, f.name)) for f in dataclasses.fields(value)]
        names = [f.name for f in dataclasses.fields(value)]
        return dict(zip(names, fields, strict=True)) if "kind" in names else fields
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def agrees(value: Any, fact: Any) -> bool:
    match fact:
        case {"between": [low, high]}:
            return isinstance(value, int) and low <= value <= high
        case {"hex": text}:
            return isinstance(value, bytes) and value.hex() == text
        case _:
            return bool(plain(value) == fact)


def assert_rows(messages: list[Message], facts: dict[str, Any]) -> None:
    """Stream blocks that hold nothing but numbered rows, each once and in order."""
    opens = [m for m in messages if isinstance(m, StreamStart)]
    closes = [m for m in messages if isinstance(m, StreamStop)]
    inserts = [m for m in messages if isinstance(m, Insert)]
    assert [m.first_segment for m in opens] == [True] + [False] * (len(opens) - 1)
    assert 1 < len(opens) == len(closes)
    assert len(messages) == len(opens) + len(closes) + len(inserts) + 1
    assert sum(isinstance(m, Relation) for m in messages) == 1
    assert [m.new for m in inserts] == [
        (b"%d" % n, f"{facts['prefix']}{n}".encode())
        for n in range(facts["first"], facts["last"] + 1)
    ]
    assert {(m.xid, m.relation_oid) for m in inserts} == {(facts["xid"], facts["table"])}


def without_empty_blocks(messages: list[Message]) -> list[Message]:
    kept: list[Message] = []
    for message in messages:
        last = kept[-1] if kept else None
        empty = isinstance(last, StreamStart) and not last.first_segment
        if isinstance(message, StreamStop) and empty:
            kept.pop()
        else:
            kept.append(message)
    return kept


@ALL_CASES
def test_messages_say_what_sql_says(case: str) -> None:
    messages, facts = without_empty_blocks(decoded(case)), expected(case)

    if facts[0][0] == "Rows":
        assert_rows(messages[:-1], facts.pop(0)[1])
        messages = messages[-1:]

    assert [type(message).__name__ for message in messages] == [name for name, _ in facts]
    for message, (name, fields) in zip(messages, facts, strict=True):
        for field, fact in fields.items():
            value = getattr(message, field)
            assert agrees(value, fact), f"{name}.{field}: {value!r} is not {fact!r}"


@ALL_CASES
def test_encoding_again_gives_the_captured_bytes(case: str) -> None:
    assert [encode_message(message) for message in decoded(case)] == list(captured(case))


@ALL_CASES
def test_every_proper_prefix_is_refused(case: str) -> None:
    decoder = decoder_of(case)
    for data in captured(case):
        for size in range(0, len(data), max(1, len(data) // 50)):
            with pytest.raises(ProtocolError):
                decoder.decode(data[:size])
        decoder.decode(data)


@pytest.mark.parametrize("major", ["16", "18"])
def test_every_message_was_captured_from_each_server(major: str) -> None:
    seen = {type(m) for case in CASES if case.startswith(major) for m in decoded(case)}

    assert seen == set(get_args(Message))


@pytest.mark.parametrize("major", ["16", "18"])
def test_every_version_was_captured_from_each_server(major: str) -> None:
    versions = {options(case)["proto_version"] for case in CASES if case.startswith(major)}

    assert versions == {"1", "2", "3", "4"}
