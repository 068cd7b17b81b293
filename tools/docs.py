"""Build the docs site into ``build/site``: what ``make docs`` and ``make check`` run.

The pages are laid out as in the repository, so that a link works on the site and beside the code.
The reference of settings, commands and schemas is generated; ``--tables`` writes the tables of
settings, headers and types in docs, which follow from `schemas.settings.tables`, `schemas.headers`
and `schemas.types`. A link or an anchor that leads nowhere is a warning, and a warning fails the
build.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from gateway.cli import command_line
from schemas.headers import HEADERS
from schemas.settings.fields import Declared, address, declared, tables, variable_of
from schemas.settings.tables import Settings, TypesTable
from schemas.types import CHANGES, KEY_FORMS, TYPES

ROOT: Final = Path(__file__).resolve().parent.parent
STAGE: Final = ROOT / "build" / "docs"
SHOWN: Final = (
    "*.md", "LICENSE", "docker-compose.yml", "docs/**/*", "examples/**/*", "schemas/*",
    "deploy/**/*", ".github/workflows/*",
)  # fmt: skip


def main() -> int:
    """Lay out the pages and build; the exit code is MkDocs'.

    With ``--tables`` the tables of the pages that follow from the code are written instead.
    """
    if sys.argv[1:] == ["--tables"]:
        for page, place, rows in TABLES:
            text = page.read_text(encoding="utf-8")
            (old,) = place.findall(text)
            page.write_text(text.replace(old, "\n".join(rows())), encoding="utf-8")
        return 0
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
    """The settings by table of the file."""
    yield "# Settings\n"
    yield "The keys of the configuration file. How they are given:"
    yield "[Operations](../docs/operations.md#configuration).\n"
    for table, kind in tables(Settings).items():
        yield f"## {table}\n"
        yield f"{inspect.getdoc(kind)}".splitlines()[0].replace("``", "`") + "\n"
        for key, (typed, default, meaning, variable) in _settings_of(table, kind):
            yield f"### {key}\n"
            # The page that the meaning was written for is in another folder.
            yield re.sub(r"\]\((?=[\w-]+\.md)", "](../docs/", meaning) + "\n"
            yield f"Type: {typed}; default: {default}; environment: {variable}.\n"


def settings_table() -> Iterator[str]:
    """The lines of the table in docs/operations.md."""
    yield "| key | type | default | meaning | environment |"
    yield "| --- | --- | --- | --- | --- |"
    for table, kind in tables(Settings).items():
        for key, row in _settings_of(table, kind):
            yield f"| `{key}` | {' | '.join(row)} |"


def _settings_of(table: str, kind: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each key of a table, with its type, default, meaning and variable."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    meanings = {
        field.target.id: " ".join(meaning.value.value.split())
        for field, meaning in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(meaning, ast.Expr) and isinstance(meaning.value, ast.Constant)
        if isinstance(meaning.value.value, str)
    }
    for key, one in declared(kind).items():
        variable = f"`{variable_of(table, key)}`"
        yield (
            f"{table}.{key}",
            (
                _shown_type(one),
                _shown_default(one.default),
                meanings[key],
                "file only" if get_origin(one.type) is Mapping else variable,
            ),
        )


def _shown_default(default: Any) -> str:
    if default is None or default is MISSING:
        return "none" if default is None else "required"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _shown_type(one: Declared) -> str:
    """Type and range, in words."""
    kind, rule = one.type, one.rule
    if type(None) in get_args(kind):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(kind))
    if rule.path or rule.check is address:
        return "path" if rule.path else "`host:port`"
    names = {bool: "boolean", int: "integer", float: "number", str: "text"}
    shown = {Mapping: "table", tuple: "list of texts"}.get(get_origin(kind)) or names[kind]
    if rule.least is not None or rule.above is not None:
        shown += f", at least {rule.least:g}" if rule.above is None else f", above {rule.above:g}"
    return shown


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


def headers_table() -> Iterator[str]:
    """The lines of the table in docs/envelope.md."""
    yield "| header | example | meaning |"
    yield "| --- | --- | --- |"
    for header in HEADERS.values():
        yield f"| `{header.name}` | `{header.example}` | {header.meaning} |"


def types_table() -> Iterator[str]:
    """The lines of the table in docs/types.md."""
    yield "| PostgreSQL | Avro | in the Spark job's tables | `[types]` | not carried | notes |"
    yield "| --- | --- | --- | --- | --- | --- |"
    defaults = TypesTable()
    for entry in filter(lambda one: one.label, TYPES):
        parameters = "(p,s)" if entry.decimal else ""
        avro = _code([entry.avro, *([entry.logical + parameters] if entry.logical else [])])
        default = f"`{entry.choice}`: {getattr(defaults, entry.choice)}" if entry.choice else ""
        spark = _code([entry.spark + parameters])
        cells = [entry.label, avro, f"{spark} or `variant`" if entry.variant else spark]
        cells += [default, entry.lost, entry.note]
        yield f"| {' | '.join(cells)} |".replace("  ", " ")


def changed_types_table() -> Iterator[str]:
    """The lines of the table of families and their changes in place in docs/types.md."""
    yield "| family | changes in place |"
    yield "| --- | --- |"
    for entry in filter(lambda one: one.label, TYPES):
        yield f"| {entry.label} | {'; '.join(CHANGES[name]['ddl'] for name in entry.changes)} |"


def changes_table() -> Iterator[str]:
    """The lines of the table of changes in place in docs/types.md."""
    yield "| change in place | what it does | how it is noticed | shown by |"
    yield "| --- | --- | --- | --- |"
    for change in CHANGES.values():
        cells = [change[name] for name in ("ddl", "effect", "noticed")]
        yield f"| {' | '.join(cells)} | `{change['test']}` |"


def key_forms_table() -> Iterator[str]:
    """The lines of the table of canonical texts in docs/envelope.md."""
    yield "| type | canonical text |"
    yield "| --- | --- |"
    for form, text in KEY_FORMS.items():
        if form not in ("text", "printed"):
            names = dict.fromkeys(n for entry in TYPES if entry.key == form for n in entry.names)
            yield f"| {_code(names)} | {text} |"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


TABLES: Final = (
    (
        ROOT / "docs" / "operations.md",
        re.compile(r"\| key \| (?:.+\n)*\| `consumer\.[a-z_]+` .+"),
        settings_table,
    ),
    (ROOT / "docs" / "envelope.md", re.compile(r"\| header \| (?:.+\n)*\| .+"), headers_table),
    (
        ROOT / "docs" / "types.md",
        re.compile(r"\| PostgreSQL \| Avro \| (?:.+\n)*\| .+"),
        types_table,
    ),
    (
        ROOT / "docs" / "types.md",
        re.compile(r"\| family \| changes in place \|\n(?:.+\n)*\| .+"),
        changed_types_table,
    ),
    (
        ROOT / "docs" / "types.md",
        re.compile(r"\| change in place \| (?:.+\n)*\| .+"),
        changes_table,
    ),
    (
        ROOT / "docs" / "envelope.md",
        re.compile(r"\| type \| canonical text \|\n(?:.+\n)*\| .+"),
        key_forms_table,
    ),
)
"""Page, place in it, and the lines of each table that follows from the code."""


if __name__ == "__main__":
    sys.exit(main())
