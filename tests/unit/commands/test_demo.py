"""`pgsluice demo` where the demo is not installed."""

from __future__ import annotations

import sys

import pytest

from gateway.cli import main


def test_an_installation_without_the_demo_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "devkit"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "devkit", None)

    code = main(["demo"])

    error = capsys.readouterr().err
    assert code == 2
    assert "the demo is not part of this installation" in error
    assert "make demo" in error
