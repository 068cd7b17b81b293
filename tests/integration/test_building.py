"""A wheel is compiled also where the system has no compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tools.build_rows import MODULES

ROOT = Path(__file__).resolve().parents[2]
SAID = """
from gateway.routing.row.native import why_not_built
from gateway.sink.delivery.batches import why_one_by_one
print(why_not_built(), why_one_by_one())
"""


def test_without_a_compiler_one_comes_from_the_package_index(tmp_path: Path) -> None:
    source, empty, wheels = tmp_path / "source", tmp_path / "empty", tmp_path / "wheels"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    empty.mkdir()
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "PGSLUICE_INTERPRETED")}
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run(
        [uv, "build", "--wheel", "--python", sys.executable, "--out-dir", str(wheels), str(source)],
        env={**environment, "PATH": str(empty)},
        check=True,
    )

    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert set(MODULES) <= set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    said = subprocess.check_output(
        [sys.executable, "-c", SAID],
        env={**environment, "PYTHONPATH": str(tmp_path / "installed")},
        cwd=tmp_path,
        text=True,
    )
    assert said.split() == ["None", "None"]
