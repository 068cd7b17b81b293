"""Folders stay rooms: small, described, and on the map that newcomers read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
FOLDERS = sorted(
    file.parent.relative_to(ROOT)
    for package in ("devkit", "gateway", "pgsluice_client", "schemas", "spark_consumer")
    for file in (ROOT / package).rglob("__init__.py")
)
TESTS = sorted({file.parent.relative_to(ROOT) for file in (ROOT / "tests").rglob("*.py")})
MOST = 15
"""Modules in a folder: one for each command is the largest."""


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_holds_few_modules_and_says_what_belongs_in_it(folder: Path) -> None:
    modules = [file for file in (ROOT / folder).glob("*.py") if file.name != "__init__.py"]
    described = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))

    assert len(modules) <= MOST
    assert described


@pytest.mark.parametrize("folder", TESTS, ids=str)
def test_a_folder_of_tests_holds_few_modules(folder: Path) -> None:
    assert len(list((ROOT / folder).glob("*.py"))) <= MOST


def test_the_map_names_every_folder_of_the_first_two_floors() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = text.split("## Rooms")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in rooms.splitlines() if line.startswith("| `")]
    named = set()
    for row in rows:
        names = [name.strip().strip("`") for name in row.split(",")]
        parent = Path(names[0]).parent
        named |= {Path(names[0])} | {
            Path(name) if "/" in name else parent / name for name in names[1:]
        }

    assert {folder for folder in named if not (ROOT / folder).is_dir()} == set()
    floors = {
        folder
        for folder in FOLDERS
        if len(folder.parts) == 2 and folder.parts[0] in ("gateway", "spark_consumer")
    }
    assert floors - named - {folder.parent for folder in named} == set()
