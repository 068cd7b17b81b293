"""The threat model names the tests that hold it, and all of them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs" / "threat-model.md"
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_each_test_that_it_names_exists() -> None:
    named = _TEST.findall(PAGE.read_text())

    assert named
    for path, function in named:
        assert (ROOT / path).is_file(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), function


def test_it_names_each_test_of_an_attack() -> None:
    named = {path for path, _ in _TEST.findall(PAGE.read_text())}
    attacks = {
        str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "security").rglob("test_*.py")
    }

    # A new one stands in the table "Each boundary", with what is tried.
    assert sorted(attacks - named) == []


def test_who_reads_about_security_or_rights_finds_it() -> None:
    assert "](docs/threat-model.md" in (ROOT / "SECURITY.md").read_text()
    assert "](threat-model.md" in (ROOT / "docs" / "operations.md").read_text()
    assert "docs/threat-model.md" in (ROOT / "mkdocs.yml").read_text()
