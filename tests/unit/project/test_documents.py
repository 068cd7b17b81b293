"""The documents say what the code says."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest

from gateway.config import Settings, load_settings

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
_ROW = re.compile(r"\| `([a-z_]+\.[a-z_]+)` \| (.*?) \| .* \| (.*?) \|")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def documented() -> dict[str, tuple[str, str]]:
    """Key to default and environment variable, from the table in docs/operations.md."""
    text = (ROOT / "docs" / "operations.md").read_text()
    return {key: (default, variable) for key, default, variable in _ROW.findall(text)}


def declared() -> Iterator[tuple[str, Any, Any]]:
    """Key, type and default of every value that the configuration knows."""
    for name, kind in get_type_hints(Settings).items():
        if not dataclasses.is_dataclass(kind):
            continue
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            yield f"{name}.{field.name}", hints[field.name], default


def shown(default: Any) -> str:
    """How the table shows a default."""
    if default is dataclasses.MISSING:
        return "required"
    if default is None:
        return "none"
    text = default if isinstance(default, str | dict | tuple) else json.dumps(default)
    return f"`{text}`"


def test_the_table_of_settings_names_every_key_and_no_other() -> None:
    assert sorted(documented()) == sorted(key for key, _, _ in declared())


def test_the_table_of_settings_has_the_defaults() -> None:
    defaults = {key: default for key, (default, _) in documented().items()}

    assert defaults == {key: shown(default) for key, _, default in declared()}


def test_the_table_of_settings_has_the_variables() -> None:
    variables = {key: variable for key, (_, variable) in documented().items()}

    assert variables == {
        key: "file only"
        if str(get_origin(hint)).endswith("Mapping'>")
        else f"`PGSLUICE_{key.upper().replace('.', '__')}`"
        for key, hint, _ in declared()
    }


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
