"""The command line itself: options before the command, and commands of a package not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.cli import main


def test_an_option_before_the_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--config", "pgsluice.toml", "check"])

    assert ended.value.code == 2
    assert "come after the command, as in: pgsluice check --config ..." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["consume", "tables", "verify"])
def test_without_the_extra_the_commands_of_spark_say_how_to_install_it(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as Python marks what cannot be imported

    assert main([command, "--config", str(tmp_path / "absent.toml")]) == 1

    shown = capsys.readouterr().err
    assert "pyspark is not installed\nhint: install the extra: " in shown
