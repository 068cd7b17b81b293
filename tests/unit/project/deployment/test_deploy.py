"""deploy/: the service and the manifests, judged by their own tools and schemas where these are."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.commands.init import _settings as written_by_init
from gateway.config import Settings, load_settings
from gateway.definitions.sql.parser import parse_definitions
from spark_consumer.settings_file import load_settings as load_consumer_settings
from spark_consumer.spark.session import AVRO_LIMITS

ROOT = Path(__file__).resolve().parents[4]
UNIT = ROOT / "deploy" / "systemd" / "pgsluice.service"
BASE = ROOT / "deploy" / "kubernetes" / "gateway"
KUBERNETES = ("1.29", "1.33")


def manifests() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((BASE / name).read_text())


def stateful_set() -> dict[str, Any]:
    return next(manifest for manifest in manifests() if manifest["kind"] == "StatefulSet")


def environment(secret: Path) -> dict[str, str]:
    """Variables of the gateway, with `secret` in the place of the mounted Secret."""
    secret.write_text("postgresql://u@h/d")
    (container,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    found = {variable["name"]: variable["value"] for variable in container["env"]}
    return found | {"PGSLUICE_SOURCE__DSN_FILE": str(secret)}


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("manifest", list(manifests()), ids=lambda m: m["kind"])
def test_manifests_are_what_kubernetes_takes(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_kubectl_renders_the_base() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl is installed here: the manifests were judged one by one")

    done = subprocess.run([kubectl, "kustomize", str(BASE)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    rendered = {m["kind"]: m for m in yaml.safe_load_all(done.stdout)}
    for manifest in rendered.values():
        kubernetes_validate.validate(manifest, KUBERNETES[-1], strict=True)
    (volume,) = [
        v
        for v in rendered["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
        if "configMap" in v
    ]
    assert volume["configMap"]["name"] == rendered["ConfigMap"]["metadata"]["name"]


@pytest.fixture(params=["of the base", "as init writes them"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    path = BASE / "pgsluice.toml"
    if request.param == "as init writes them":
        path = tmp_path / "pgsluice.toml"
        path.write_text(written_by_init("host=h", "shop", "kafka:9092", "http://registry:8081"))
    return load_settings(path, environment(tmp_path / "dsn"))


def test_selectors_and_probes_find_the_gateway(settings: Settings) -> None:
    spec = stateful_set()["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    labels = spec["template"]["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    host, _, port = str(settings.http.listen).rpartition(":")

    assert spec["selector"]["matchLabels"] == labels
    for manifest in manifests():
        selector = manifest["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels
    assert (host, ports) == ("0.0.0.0", {"http": int(port)})
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_pods_run_without_root_and_write_only_where_they_may(settings: Settings) -> None:
    spec = stateful_set()["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert str(settings.gateway.spool_directory) in mounts
    # The user that the image has.
    owner = f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
    assert f"\nUSER {owner}\n" in (ROOT / "Dockerfile").read_text()


def test_the_configuration_of_the_base_is_one_that_the_gateway_reads(tmp_path: Path) -> None:
    settings = load_settings(BASE / "pgsluice.toml", environment(tmp_path / "dsn"))
    definitions = parse_definitions(settings.definitions.file.read_text())

    assert conninfo_host(settings.source.dsn) == "h"
    assert definitions.subscriptions and settings.warnings == ()
    graceful = stateful_set()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert graceful > settings.limits.shutdown_timeout_s


def conninfo_host(dsn: str) -> str:
    return dict(part.split("=", 1) for part in dsn.split())["host"]


def test_the_spark_application_starts_what_its_image_has(tmp_path: Path) -> None:
    application = yaml.safe_load((ROOT / "deploy/kubernetes/spark/application.yaml").read_text())
    spec = application["spec"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pyspark, _) = project["optional-dependencies"]["spark"]
    document = (ROOT / "docs" / "spark.md").read_text()
    (stage,) = re.findall(
        r"^FROM job AS spark\n(.*?)\n\n", (ROOT / "Dockerfile").read_text(), re.M | re.S
    )

    assert f"pyspark=={spec['sparkVersion']}" == pyspark
    # Spark does not expand a wildcard after local://: the connectors are among its own jars.
    assert "deps" not in spec
    program = spec["mainApplicationFile"].removeprefix("local://")
    assert f'cp "$packages/spark_consumer/__main__.py" {program}' in stage
    listed = dict(spec["sparkConf"])
    assert listed.pop("spark.executor.extraJavaOptions") == AVRO_LIMITS
    assert all(f"--conf {name}={value}" in document for name, value in listed.items())
    (tmp_path / "consumer.toml").write_text(document.split("```toml\n")[1].split("```")[0])
    assert load_consumer_settings(tmp_path / "consumer.toml", {}).subscriptions == ("s1",)


def unit() -> dict[str, list[str]]:
    """By key of [Service], its values."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().partition("[Service]")[2].partition("[Install]")[0].splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_the_unit_has_settings_that_the_gateway_knows(tmp_path: Path) -> None:
    secret = tmp_path / "dsn"
    secret.write_text("postgresql://u@h/d")
    environment = dict(value.split("=", 1) for value in unit()["Environment"])
    environment["PGSLUICE_SOURCE__DSN_FILE"] = str(secret)

    settings = load_settings(BASE / "pgsluice.toml", environment)

    assert settings.log.format == "json"
    assert int(unit()["TimeoutStopSec"][0]) > settings.limits.shutdown_timeout_s
    assert unit()["Type"] == ["notify"]
    # Codes of docs/operations.md: a person must act, usage.
    assert unit()["RestartPreventExitStatus"] == ["1 2"]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd is installed here: the unit was read as text only")
    text = UNIT.read_text().replace("/opt/pgsluice/bin/pgsluice", "/bin/true")
    (tmp_path / UNIT.name).write_text(text)

    done = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / UNIT.name)], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
