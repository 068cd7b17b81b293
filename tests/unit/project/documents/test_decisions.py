"""The index of the decisions has each of them once, by its number, title and file."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[4] / "docs" / "decisions"


def test_the_index_has_each_decision_once() -> None:
    listed = re.findall(r"^- \[(\d+)\. (.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.M)
    found = []
    for file in FOLDER.glob("0*.md"):
        title = re.fullmatch(r"# (\d+)\. (.+)", file.read_text().split("\n", 1)[0])
        assert title is not None, file.name
        assert int(title[1]) == int(file.name[:4])
        found.append((title[1], title[2], file.name))

    assert sorted(listed) == sorted(found)
