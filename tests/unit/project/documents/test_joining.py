"""What somebody who joins relies on: workflows name what exists, and packages say what they are."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import build_rows

ROOT = Path(__file__).resolve().parents[4]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(workflow: Path) -> dict[str, Any]:
    found = yaml.safe_load(workflow.read_text())["jobs"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_step_uses_an_action_or_runs_a_command(workflow: Path) -> None:
    for job in jobs(workflow).values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("compose-spec", "docker-compose.yml"),
    ],
)
def test_files_are_valid_by_the_schemas_of_those_who_read_them(schema: str, files: str) -> None:
    found = sorted(ROOT.glob(files))
    assert found

    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *found],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_runs_what_a_person_runs() -> None:
    steps = jobs(ROOT / ".github/workflows/test.yml")["check-and-test"]["steps"]

    assert ".ci/run" in [step.get("run") for step in steps]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_released_wheels_are_compiled_for_both_machines() -> None:
    job = jobs(ROOT / ".github/workflows/release.yml")["wheels"]
    (build,) = [step for step in job["steps"] if "cibuildwheel" in step.get("uses", "")]
    modules = [Path(name).name.removesuffix(".abi3.so").lstrip("_") for name in build_rows.MODULES]

    assert job["strategy"]["matrix"]["machine"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert job["runs-on"] == "${{ matrix.machine }}"
    assert all(f"'{module}'" in build["env"]["CIBW_TEST_COMMAND"] for module in modules)


def test_every_package_is_typed_and_the_project_says_what_it_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert all((ROOT / package / "py.typed").is_file() for package in packages)
    assert (ROOT / project["project"]["readme"]).is_file()
    assert "Typing :: Typed" in project["project"]["classifiers"]


def test_make_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.M))

    assert targets == set(re.findall(r"^([a-z-]+):.*## .+$", text, re.M))
