"""The compiled modules are built where they can be, and never of other sources than these."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gateway.routing.row.native import why_not_built
from gateway.sink.delivery.batches import why_one_by_one
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
    newest = max(path.stat().st_mtime for path in build_rows.MODULES[ROWS].iterdir())
    os.utime(module, (newest - 1, newest - 1))

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


def test_what_is_newer_than_the_sources_is_kept(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    for module in build_rows.MODULES:
        (tree / module).write_bytes(b"of these sources")

    assert build_rows.build(tree) is None
    for module in build_rows.MODULES:
        assert (tree / module).read_bytes() == b"of these sources"


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
