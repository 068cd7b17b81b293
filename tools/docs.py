"""Build the docs site into ``build/site``: what ``make docs`` and ``make check`` run.

The pages are laid out as in the repository, so that a link works on the site and beside the code.
The reference of settings, commands and schemas is generated. A link or an anchor that leads nowhere
is a warning, and a warning fails the build.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_type_hints

from gateway.cli import command_line
from gateway.config import Settings

ROOT: Final = Path(__file__).resolve().parent.parent
STAGE: Final = ROOT / "build" / "docs"
SHOWN: Final = (
    "*.md", "LICENSE", "docker-compose.yml", "docs/**/*", "examples/**/*", "schemas/*",
    "deploy/**/*", ".github/workflows/*",
)  # fmt: skip
_SETTING: Final = re.compile(
    r"^\| `([a-z_]+\.[a-z_]+)` \| (.*?) \| (.*) \| (.*?) \|$", re.MULTILINE
)


def main() -> int:
    """Lay out the pages and build; the exit code is MkDocs'."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for path in {path for pattern in SHOWN for path in ROOT.glob(pattern) if path.is_file()}:
        if "__pycache__" not in path.parts:
            target = STAGE / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    (STAGE / "reference").mkdir()
    for name, lines in (("settings", settings()), ("commands", commands()), ("schemas", schemas())):
        (STAGE / "reference" / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=ROOT,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    ).returncode


def settings() -> Iterator[str]:
    """The settings by table of the file; what each means is in docs/operations.md."""
    operations = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    known = {row[0]: row[1:] for row in _SETTING.findall(operations)}
    yield "# Settings\n"
    yield "The keys of the configuration file. How they are given:"
    yield "[Operations](../docs/operations.md#configuration).\n"
    for table, kind in get_type_hints(Settings).items():
        if not dataclasses.is_dataclass(kind):
            continue
        yield f"## {table}\n"
        yield f"{inspect.getdoc(kind)}".splitlines()[0].replace("``", "`") + "\n"
        for field in dataclasses.fields(kind):
            default, meaning, variable = known[f"{table}.{field.name}"]
            typed = str(field.type).replace("|", "or")
            yield f"### {table}.{field.name}\n"
            # The page that the meaning was written for is in another folder.
            yield re.sub(r"\]\((?=[\w-]+\.md)", "](../docs/", meaning) + "\n"
            yield f"Type `{typed}`; default {default}; environment {variable}.\n"


def commands() -> Iterator[str]:
    """What ``--help`` says, for the program and each command."""
    os.environ["COLUMNS"] = "100"
    yield "# Commands\n"
    yield from _help(command_line(), 2)


def _help(parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {parser.prog}\n\n```text\n{parser.format_help()}```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _help(child, min(depth + 1, 4))


def schemas() -> Iterator[str]:
    """The fields of every record in the topics."""
    yield "# Schemas\n"
    yield "The Avro schemas of the topics, for the manual's table t1. What the fields mean:"
    yield "[What is in the topics](../docs/envelope.md).\n"
    for path in sorted((ROOT / "schemas").glob("*.avsc")):
        yield f"## {path.stem}\n"
        yield f"[{path.name}](../schemas/{path.name})\n"
        yield from _fields(json.loads(path.read_text(encoding="utf-8")), "")


def _fields(record: dict[str, Any], namespace: str) -> Iterator[str]:
    namespace = record.get("namespace", namespace)
    yield f"**{namespace}.{record['name']}**\n"
    yield "| field | type | default |\n| --- | --- | --- |"
    inner = []
    for field in record["fields"]:
        default = f"`{json.dumps(field['default'])}`" if "default" in field else ""
        yield f"| `{field['name']}` | `{_typed(field['type'])}` | {default} |"
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for branch in branches:
            branch = branch.get("items", branch) if isinstance(branch, dict) else branch
            if isinstance(branch, dict) and branch.get("type") == "record":
                inner.append(branch)
    yield ""
    for one in inner:
        yield from _fields(one, namespace)


def _typed(kind: Any) -> str:
    if isinstance(kind, list):
        return " or ".join(_typed(branch) for branch in kind)
    if isinstance(kind, dict):
        if kind["type"] == "record":
            return str(kind["name"])
        if kind["type"] in ("array", "map"):
            return f"{kind['type']} of {_typed(kind.get('items', kind.get('values')))}"
        return str(kind.get("logicalType", kind["type"]))
    return str(kind)


if __name__ == "__main__":
    sys.exit(main())
