"""``completion``: the shells themselves complete commands, options and values."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli import command_line
from gateway.commands.completion import completion
from gateway.core.descriptors import wait_readable
from tests.support.run.waiting import PATIENCE

COMPLETED = [
    ("", {"run", "tail", "slot", "completion"}, {"drop", "--config"}),
    ("st", {"status"}, {"run"}),
    ("slot ", {"drop"}, {"run"}),
    ("slot drop --", {"--yes", "--force", "--config"}, {"--endpos"}),
    ("tail --s", {"--since"}, {"--subscription"}),
    ("copy orders --w", {"--where"}, {"--watch"}),
    ("completion ", {"bash", "fish", "zsh"}, {"run"}),
    ("demo --postgres ", {"16", "18"}, {"run"}),
    ("run --config pgsl", {"pgsluice.toml"}, {"run"}),
    ("verify --table ", set(), {"pgsluice.toml", "run"}),
]


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


@pytest.fixture
def script(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Path:
    completion(command_line(), request.param)
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out)
    (tmp_path / "pgsluice.toml").touch()
    return path


def run(*command: str, folder: Path) -> set[str]:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=60 * PATIENCE
    )
    assert done.stderr == ""
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(("typed", "offered", "absent"), COMPLETED)
def test_bash_completes(script: Path, typed: str, offered: set[str], absent: set[str]) -> None:
    program = (
        f'source {script}; COMP_WORDS=(pgsluice "$@"); COMP_CWORD=$#; _pgsluice;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )

    found = run(needs("bash"), "-c", program, "bash", *typed.split(" "), folder=script.parent)

    assert offered <= found
    assert not absent & found


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(("typed", "offered", "absent"), COMPLETED)
def test_fish_completes(script: Path, typed: str, offered: set[str], absent: set[str]) -> None:
    program = f"source {script}; complete -C 'pgsluice {typed}'"

    found = run(needs("fish"), "--no-config", "-c", program, folder=script.parent)

    assert offered <= found
    assert not absent & found


@pytest.fixture
def zsh(script: Path) -> Iterator[int]:
    """The screen of a zsh with the completion."""
    shell = needs("zsh")
    process, screen = pty.fork()
    if process == 0:
        os.chdir(script.parent)
        os.environ["TERM"] = "dumb"
        os.execv(shell, [shell, "-f", "-i"])
    typed(
        screen,
        f"PS1='' ; autoload -Uz compinit && compinit -u -D && source {script}; echo r''dy\n",
        "rdy",
    )
    yield screen
    os.write(screen, b"\x03\nexit\n")
    os.waitpid(process, 0)
    os.close(screen)


def typed(screen: int, text: str, awaited: str) -> None:
    """Type, and wait until that shows."""
    os.write(screen, text.encode())
    shown, deadline = "", time.monotonic() + 20 * PATIENCE
    while awaited not in shown:
        assert time.monotonic() < deadline, shown
        if wait_readable([screen], 0.2):
            shown += os.read(screen, 4096).decode(errors="replace")


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_completes(script: Path, zsh: int) -> None:
    for text, awaited in (
        ("pgsluice stat\t", "status "),
        ("pgsluice slot dr\t", "drop "),
        ("pgsluice slot drop --ye\t", "--yes "),
        ("pgsluice tail --sin\t", "--since "),
        ("pgsluice completion fi\t", "fish "),
        ("pgsluice run --config pgsl\t", "pgsluice.toml "),
    ):
        typed(zsh, text, awaited)
        typed(zsh, "\x15echo r''dy\n", "rdy")
