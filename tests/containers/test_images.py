"""The three images, each alone: who runs in it, what is in it, and what it may not do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.containers.system import IMAGES, System

LOOK = """
import importlib.util, json, os, pathlib, shutil, sys
status = dict(l.split(":", 1) for l in pathlib.Path("/proc/self/status").read_text().splitlines())
try:
    pathlib.Path("/written").touch()
    writable = True
except OSError:
    writable = False
environments, installers = [], []
for top, folders, files in os.walk("/"):
    if top == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys")]
    environments += [top for name in files if name == "pyvenv.cfg"]
    installers += [os.path.join(top, name) for name in folders if name in ("pip", "setuptools")]
print(json.dumps({
    "user": [os.getuid(), os.getgid(), os.getgroups()],
    "capabilities": status["CapBnd"].strip(),
    "writable": writable,
    "environments": environments,
    "installers": installers,
    "programs": [name for name in ("pip", "pip3", "gcc", "cc", "java") if shutil.which(name)],
    "modules": [name for name in ("pip", "pyspark", "devkit") if importlib.util.find_spec(name)],
    "compiled": len(list(pathlib.Path(sys.prefix).rglob("_speedups/_*.so"))),
}))
"""
HARDENED = (
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges:true",
)


@pytest.mark.parametrize("target", IMAGES)
def test_an_image_has_one_environment_and_needs_neither_root_nor_a_disk(
    images: System, target: str
) -> None:
    image = images.image(target)

    looked = images.engine.docker(
        "run", "--rm", *HARDENED, "--entrypoint=python", image, "-I", "-c", LOOK
    )

    found: dict[str, Any] = json.loads(looked)
    job = target != "gateway"
    assert images.inspect(image)["Config"]["User"] == "10001:10001"
    assert found["user"] == [10001, 10001, [10001]]
    assert int(found["capabilities"], 16) == 0
    assert found["writable"] is False
    assert found["environments"] == ["/opt/consumer" if job else "/opt/gateway"]
    assert found["installers"] == []
    assert found["programs"] == (["java"] if job else [])
    assert found["modules"] == (["pyspark"] if job else [])
    # Rows are routed by the compiled modules.
    assert found["compiled"] == 4


def test_the_gateway_has_nothing_of_spark_in_its_size(images: System) -> None:
    assert images.bytes["gateway"] < images.bytes["consumer"] / 3


@pytest.mark.parametrize("target", ["gateway", "consumer"])
def test_an_image_starts_the_command(images: System, target: str) -> None:
    said = images.engine.docker("run", "--rm", *HARDENED, images.image(target), "--version")

    assert said.startswith("pgsluice ")


def test_the_image_for_pods_says_what_only_spark_tells_it(images: System) -> None:
    for role, missing in (("driver", "DRIVER_BIND_ADDRESS"), ("executor", "EXECUTOR_MEMORY")):
        with pytest.raises(AssertionError, match=rf"SPARK_{missing}: is set by Spark in the pod"):
            images.engine.docker("run", "--rm", *HARDENED, images.image("spark"), role)
