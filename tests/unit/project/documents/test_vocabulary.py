"""The words of docs/vocabulary.md, held true in the packages that were cleaned so far."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[4]
PAGE: Final = ROOT / "docs/vocabulary.md"
CLEAN: Final = (
    "_speedups",
    "commands",
    "config",
    "copy",
    "core",
    "definitions",
    "envelope",
    "jars",
    "monitor",
    "observe",
    "pgoutput",
    "pgtypes",
    "routing",
    "rowfilter",
    "runtime",
    "sink",
    "source",
    "subselects",
    "transactions",
)
"""Packages of the gateway: all of them."""

WHOLE: Final = ("devkit", "pgsluice_client", "schemas", "spark_consumer")
"""Packages beside it, which are checked as one each."""

FORMATS: Final = {"taken", "taken_from", "KEY_FORMS"}
"""Fields of records in Kafka, and the canonical forms of keys."""

PHRASAL: Final = re.compile(r"tak(?:e|es|en|ing)_over")
OPENINGS: Final = re.compile(r"(?:^|[.:] )(So|Of|What|Such|Where)\b(?! [^.]*\?)")


def words() -> tuple[set[str], set[str]]:
    """Return the words to use nowhere, and those not to use in names."""
    nowhere: set[str] = set()
    names: set[str] = set()
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[0] not in ("say", "---"):
            nowhere.update(re.findall(r"`([^`]+)`", cells[2]))
            names.update(re.findall(r"`([^`]+)`", cells[3]))
    return nowhere, names


def modules(package: str) -> list[Path]:
    folder = ROOT if package in WHOLE else ROOT / "gateway"
    found = sorted((folder / package).rglob("*.py"))
    assert found
    return found


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def parts_of(identifier: str) -> list[str]:
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier).lower()
    return PHRASAL.sub("takeover", snake).strip("_").split("_")


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield docstrings, also those of attributes and constants."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


@pytest.mark.parametrize("package", CLEAN + WHOLE)
def test_names_and_docstrings_use_the_words_of_the_vocabulary(package: str) -> None:
    nowhere, names = words()
    found = []

    for path in modules(package):
        source = path.read_text()
        tree = ast.parse(source)
        for line, name in identifiers(tree):
            bad = {*parts_of(name)} & (names | nowhere)
            if bad and name not in FORMATS:
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
        for line, text in [*docstrings(tree), *comments(source)]:
            flat = " ".join(text.split())
            found += [
                f"{path.relative_to(ROOT)}:{line}: {word}"
                for word in nowhere
                if re.search(rf"\b{word}\b", flat, re.IGNORECASE)
            ]

    assert "take" in names and "anew" in nowhere
    assert not found


@pytest.mark.parametrize("package", CLEAN + WHOLE)
def test_no_sentence_begins_with_a_dangling_clause(package: str) -> None:
    found = []

    for path in modules(package):
        for line, text in docstrings(ast.parse(path.read_text())):
            for paragraph in text.split("\n\n"):
                flat = " ".join(paragraph.split())
                found += [
                    f"{path.relative_to(ROOT)}:{line}: {match.group(1)}"
                    for match in OPENINGS.finditer(flat)
                ]

    assert not found
