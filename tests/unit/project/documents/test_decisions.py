"""Decisions: the index has each once, by number, title and file, and each is short."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[4] / "docs" / "decisions"
MOST_LINES = 14
"""Maximum number of lines of text in a record. More belongs to a page or a docstring."""


def test_the_index_has_each_decision_once() -> None:
    listed = re.findall(r"^- \[(\d+)\. (.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.M)
    found = []
    for file in FOLDER.glob("0*.md"):
        title = re.fullmatch(r"# (\d+)\. (.+)", file.read_text().split("\n", 1)[0])
        assert title is not None, file.name
        assert int(title[1]) == int(file.name[:4])
        found.append((title[1], title[2], file.name))

    assert sorted(listed) == sorted(found)


def test_each_decision_is_short() -> None:
    lines = {
        file.name: len([line for line in file.read_text().splitlines()[1:] if line])
        for file in FOLDER.glob("0*.md")
    }

    assert {name: number for name, number in lines.items() if number > MOST_LINES} == {}
