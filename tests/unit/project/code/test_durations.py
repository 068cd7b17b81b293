"""What a run of the tests took, summed by file, and when that fails a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import durations

RUN = {
    "wall_s": 7.0,
    "cpu_s": {"gw0": 3.0, "servers": 4.0},
    "tests": {
        "tests/unit/test_a.py::test_1": {"setup": 1.0, "call": 2.0, "teardown": 0.5, "cpu": 1.5},
        "tests/unit/test_a.py::test_2[x]": {"setup": 0.0, "call": 1.0, "cpu": 0.5},
        "tests/fault/test_b.py::test_3": {"setup": 0.0, "call": 5.5, "teardown": 0.0, "cpu": 2.0},
    },
    "fixtures": {"kafka": {"calls": 2, "seconds": 6.0}},
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(durations, "WRITTEN", tmp_path / "run.json")
    monkeypatch.setattr(durations, "RECORDED", tmp_path / "recorded.json")
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    return tmp_path


def record(folder: Path, **seconds: float) -> None:
    files = {f"tests/{tier}/test_x.py": value for tier, value in seconds.items()}
    (folder / "recorded.json").write_text(json.dumps({"files": files}))


def test_every_recorded_file_exists() -> None:
    root = Path(__file__).parents[4]
    files = json.loads((root / "tests" / "durations.json").read_text())["files"]
    assert [file for file in files if not (root / file).is_file()] == []


def test_seconds_are_summed_by_file() -> None:
    assert durations.by_file(RUN) == {
        "tests/unit/test_a.py": {"tests": 2, "wall": 4.5, "cpu": 2.0},
        "tests/fault/test_b.py": {"tests": 1, "wall": 5.5, "cpu": 2.0},
    }


@pytest.mark.parametrize(
    ("recorded", "asked", "code"),
    [(7.4, "1", 1), (7.6, "1", 0), (1.0, "", 0)],
    ids=["a third more than recorded", "less than that", "nobody has asked"],
)
def test_a_run_that_takes_a_third_longer_fails_where_that_is_asked_for(
    files: Path, monkeypatch: pytest.MonkeyPatch, recorded: float, asked: str, code: int
) -> None:
    monkeypatch.setenv("PGSLUICE_TIME_BUDGET", asked)
    record(files, unit=recorded / 2, fault=recorded / 2, spark=1_000.0)

    assert durations.report(["unit", "fault"]) == code


def test_a_summary_names_the_run_its_files_tests_and_fixtures(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    durations.show(RUN)

    shown = capsys.readouterr().out
    assert "durations: 7 s, 7 s of CPU: gw0 3, servers 4" in shown
    for name in ("unit", "tests/fault/test_b.py", "tests/unit/test_a.py::test_1", "kafka"):
        assert name in shown
