"""The check that finds what production code does not use."""

from __future__ import annotations

from pathlib import Path

from tools.unused import unused

PART = """
import logging
from typing import Protocol

LIMIT = 3
SPARE = 4

def used(): return LIMIT
def entry(): pass
def called_by_itself(): called_by_itself()
def called_by_a_test(): pass

class Thing:
    def go(self): return self._step()
    def _step(self): pass
    def idle(self): return self.idle()
    def __len__(self): return 0

class Taker(Protocol):
    def taken(self): ...

class Handler(logging.Handler):
    def emit(self, record): pass
"""
USER = """
from gateway import used
from gateway import part

def main(x: part.Taker): return used(), part.Thing().go(), part.Handler(), getattr(x, "taken")
"""


def test_what_only_tests_or_the_definition_itself_mention_is_named(tmp_path: Path) -> None:
    files = {
        "gateway/__init__.py": "from gateway.part import used as used",
        "gateway/part.py": PART,
        "gateway/user.py": USER,
        "tests/test_part.py": "from gateway.part import called_by_a_test; called_by_a_test()",
        "pyproject.toml": "project.scripts = {a = 'gateway.user:main', b = 'gateway.part:entry'}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    found = [line.removeprefix("gateway/part.py:") for line in unused(tmp_path)]

    assert found == [
        "6: SPARE is not used",
        "10: called_by_itself is not used",
        "11: called_by_a_test is not used",
        "16: Thing.idle is not used",
    ]


def test_what_is_for_the_servers_may_be_used_by_tests(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("project.scripts = {}")
    for folder in ("devkit/embedded", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "devkit/embedded/server.py").write_text("def kill(): pass\ndef stop(): pass")
    (tmp_path / "tests/test_it.py").write_text("from devkit.embedded import server; server.kill()")

    assert list(unused(tmp_path)) == ["devkit/embedded/server.py:2: stop is not used"]
