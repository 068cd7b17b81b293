"""docs/envelope.md and the schemas say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import schemas

DOCUMENT = (Path(__file__).parents[3] / "docs" / "envelope.md").read_text(encoding="utf-8")


def documented_fields(heading: str) -> list[tuple[str, str]]:
    """The fields and types of the first table after the line that begins with `heading`."""
    after = DOCUMENT[DOCUMENT.index(f"\n{heading}") :]
    table = after[after.index("| field | type |") :].split("\n\n", 1)[0]
    return re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, flags=re.MULTILINE)


def written(avro: Any) -> str:
    """An Avro type as the document writes it."""
    if isinstance(avro, list):
        return " or ".join(written(branch) for branch in avro)
    if isinstance(avro, dict):
        if avro["type"] == "array":
            return f"array of {written(avro['items'])}"
        return f"`{avro['name']}`"
    return f"`{avro}`" if avro[0].isupper() else str(avro)


def fields_of(record: dict[str, Any]) -> list[tuple[str, str]]:
    return [(field["name"], written(field["type"])) for field in record["fields"]]


ENVELOPE = schemas.load("envelope")
SOURCE = ENVELOPE["fields"][2]["type"]
TRANSACTION = ENVELOPE["fields"][3]["type"][1]


@pytest.mark.parametrize(
    ("heading", "record"),
    [("## Value", ENVELOPE), ("`Source`:", SOURCE), ("`Transaction`:", TRANSACTION)],
    ids=["Envelope", "Source", "Transaction"],
)
def test_the_document_has_the_fields_of_the_schema(heading: str, record: dict[str, Any]) -> None:
    assert documented_fields(heading) == fields_of(record)


def test_the_document_names_every_kind_of_marker() -> None:
    fields = {field["name"]: field for field in schemas.load("transaction")["fields"]}
    kinds = fields["kind"]["type"]["symbols"]
    table = DOCUMENT[DOCUMENT.index("| kind | when | says |") :].split("\n\n", 1)[0]

    assert set(re.findall(r"`([A-Z_]{3,})`", table)) == set(kinds)


def test_the_documents_python_example_gives_the_documents_partition() -> None:
    (code,) = re.findall(r"```python\n(import struct, zlib\n.*?)```", DOCUMENT, flags=re.DOTALL)
    namespace: dict[str, object] = {}

    exec(code, namespace)

    assert namespace["partition"] == 2
