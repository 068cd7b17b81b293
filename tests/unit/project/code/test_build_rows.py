"""The compiled modules are built where they can be, and never of other sources than these."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from gateway._speedups import codes, layouts, loader
from gateway._speedups.loader import interface_of, load_compiled
from gateway.core.records import Header, Record
from gateway.pgoutput import letters
from gateway.routing.row.native import why_not_built
from gateway.sink.delivery.batches import why_one_by_one
from schemas.headers import HEADERS
from tools import build_rows

ROWS = "gateway/_speedups/_rows.abi3.so"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """With the folder of the modules."""
    for module in build_rows.MODULES:
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
    return tmp_path


def test_without_a_compiler_the_reason_is_told_and_nothing_is_left(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    module = tree / ROWS
    module.write_bytes(b"of other sources")

    why = build_rows.build(tree)

    assert why == "there is no C compiler (Debian, Ubuntu: apt install gcc)"
    assert not module.exists()


def test_what_is_built_belongs_neither_to_the_repository_nor_to_an_image() -> None:
    """Nor to a wheel for every platform, which has what git has."""
    for module in build_rows.MODULES:
        ignored = subprocess.run(["git", "check-ignore", "-q", module], cwd=build_rows.ROOT)
        listed = subprocess.check_output(["git", "ls-files", module], cwd=build_rows.ROOT)
        pattern = module.replace(".abi3.so", "*.so")
        assert (ignored.returncode, listed) == (0, b"")
        assert pattern in (build_rows.ROOT / ".dockerignore").read_text().splitlines()
        assert (build_rows.ROOT / module.replace(".abi3.so", ".pyi")).exists()


def test_a_compiler_that_fails_is_quoted(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tree / "cc"
    compiler.write_text("#!/bin/sh\necho no room; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))

    why = build_rows.build(tree)

    assert why is not None
    assert "no room" in why or "headers" in why
    assert [path for path in tree.rglob("*") if path.is_file()] == [compiler]


def test_what_is_built_of_these_sources_is_kept(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    for module, sources in build_rows.MODULES.items():
        (tree / module).write_bytes(b"of " + interface_of(sources.name).encode())

    assert build_rows.build(tree) is None
    assert all((tree / module).exists() for module in build_rows.MODULES)


def test_what_is_built_of_other_sources_is_never_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {name: interface_of(name) for name in ("rows", "scanning")}
    changed = tmp_path / "headers.toml"
    changed.write_text((build_rows.SCHEMAS / "headers.toml").read_text() + "# another\n")
    monkeypatch.setattr(loader, "_DECLARED", (*loader._DECLARED[:-1], changed))

    for name, digest in here.items():
        assert interface_of(name) != digest
        assert load_compiled(name) in ("built from other sources", "not built")


def test_what_c_and_python_share_is_declared_once() -> None:
    lines = build_rows.declarations().splitlines()

    names = ", ".join(f'"{name}"' for name in HEADERS)
    assert f"#define HEADER_NAMES {{{names}}}" in lines
    assert len(HEADERS) <= 32  # bits of HEADERS_OF_RECORD
    assert any("ALL_OF = '&'" in line and "GREATER = 4" in line for line in lines)
    used = "".join(path.read_text() for path in build_rows.MODULES[ROWS].iterdir())
    for name in (name for name in (*vars(codes), *vars(letters)) if name.isupper()):
        assert re.search(rf"\b{name}\b", used), f"no C source uses {name}"


def test_c_reads_every_field_of_a_layout_by_its_name() -> None:
    declared = build_rows.declarations()
    used = "".join(path.read_text() for path in build_rows.SPEEDUPS.rglob("*.c"))

    for layout in (name for name, made in vars(layouts).items() if hasattr(made, "_fields")):
        prefix = "KAFKA_HEADER" if layout == "KafkaHeader" else layout.upper()
        fields = getattr(layouts, layout)._fields
        names = [f"{prefix}_{field.upper()}" for field in (*fields, "SIZE")]
        assert f"enum {{ {', '.join(names)} }};" in declared
        for name in names:
            assert re.search(rf"\b{name}\b", used), f"no C source uses {name}"


@pytest.mark.parametrize("path", sorted(build_rows.SPEEDUPS.rglob("*.c")), ids=lambda p: p.name)
def test_c_reads_no_field_by_a_number(path: Path) -> None:
    by_number = r"Py(?:Tuple|List)_[GS]etItem\([^;]*?, \d+\b|\barguments\[\d"

    assert re.findall(by_number, path.read_text()) == []


def test_plain_tuples_have_the_fields_of_their_layouts() -> None:
    *fields, headers = get_type_hints(layouts.Record).values()

    assert get_args(Record) == (*fields, list[Header])
    assert get_args(headers) == (layouts.KafkaHeader,)
    assert get_args(Header) == tuple(get_type_hints(layouts.KafkaHeader).values())


def test_what_is_built_in_this_tree_is_taken() -> None:
    can_be_built = build_rows.build() is None

    assert (why_not_built() is None) == can_be_built
    assert (why_one_by_one() is None) == can_be_built


@pytest.mark.parametrize("sources", build_rows.MODULES.values(), ids=lambda path: path.name)
def test_a_module_says_why_it_is_there_and_what_it_equals(sources: Path) -> None:
    text = (sources / f"{sources.name}.c").read_text()

    assert ".m_doc = module_doc" in text
    for part in ("Why:", "Assumes:", "Equals:"):
        assert f'    "{part} ' in text
