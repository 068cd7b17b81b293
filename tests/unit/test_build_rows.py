"""The compiled row path is built where it can be, and never of other sources than these."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.routing.compiled import why_not_built
from tools import build_rows


def test_without_a_compiler_the_reason_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    module = tmp_path / "_rows.abi3.so"
    module.write_bytes(b"of other sources")
    newest = max(path.stat().st_mtime for path in build_rows.SOURCES.iterdir())
    os.utime(module, (newest - 1, newest - 1))

    why = build_rows.build(module)

    assert why == "there is no C compiler (Debian, Ubuntu: apt install gcc)"
    assert not module.exists()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho no room; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))

    why = build_rows.build(tmp_path / "_rows.abi3.so")

    assert why is not None
    assert "no room" in why or "headers" in why
    assert list(tmp_path.iterdir()) == [compiler]


def test_what_is_newer_than_the_sources_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    module = tmp_path / "_rows.abi3.so"
    module.write_bytes(b"of these sources")

    assert build_rows.build(module) is None
    assert module.read_bytes() == b"of these sources"


def test_what_is_built_in_this_tree_is_taken() -> None:
    can_be_built = build_rows.build() is None

    assert (why_not_built() is None) == can_be_built
