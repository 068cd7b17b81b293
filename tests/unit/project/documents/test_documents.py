"""The documents say what the code says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.config import load_settings
from tools.docs import TABLES
from tools.run_tests import WORKERS

ROOT = Path(__file__).resolve().parents[4]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_TEST = re.compile(r"`(tests/[\w/]+(?:\.py)?)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    ("page", "place", "rows"),
    TABLES,
    ids=["settings", "headers", "types", "families", "changes", "keys"],
)
def test_a_table_that_follows_from_the_code_is_what_the_code_declares(
    page: Path, place: re.Pattern[str], rows: Callable[[], Iterator[str]]
) -> None:
    (documented,) = place.findall(page.read_text())

    assert documented.splitlines() == list(rows()), "run python -m tools.docs --tables"


@pytest.mark.parametrize("document", ["README.md", "docs/operations.md"])
def test_the_example_configuration_loads(document: str, tmp_path: Path) -> None:
    text = (ROOT / document).read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "pgsluice.toml").write_text(example)

    settings = load_settings(tmp_path / "pgsluice.toml", {})

    assert set(tomllib.loads(example)) == {
        "source",
        "definitions",
        "kafka",
        "registry",
        "consumer",
    }
    assert settings.warnings == ()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(document: Path) -> None:
    links = _LINK.findall(document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_named_test_is_there(document: Path) -> None:
    named = _TEST.findall(document.read_text())

    assert [test for test in named if not (ROOT / test).exists()] == []


def test_the_example_consumer_of_the_readme_is_python_of_at_most_fifteen_lines() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    compile(example, "README.md", "exec")

    assert len([line for line in example.splitlines() if line.strip()]) <= 15


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    measured = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rates = re.findall(
        r" (\d+,\d{3})  +(\d\.\d\d) .*? (\d+\.\d) +\d+\.\d +\d+\.\d +\d+$", measured, re.M
    )
    known = {(f"{round(int(rate.replace(',', '')), -3):,}", of, cpu) for rate, of, cpu in rates}
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("## How fast")[1]
    told = re.findall(r"^\| .* \| (\d+,\d{3}) \| (\d\.\d\d) \| (\d+\.\d) µs \|$", table, re.M)

    assert len(told) == 5
    assert set(told) <= known


def test_the_page_about_tests_says_how_many_processes_run_them() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (word,) = re.findall(r"(\w+) processes\s+\(`PGSLUICE_TEST_WORKERS`\)", page)

    assert {"Two": 2, "Three": 3, "Four": 4}[word] == int(WORKERS)
