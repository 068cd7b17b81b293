"""What can be known about docker-compose.yml and the Dockerfile without an engine."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.embedded.registry import API_PATH
from gateway.config import load_settings
from gateway.definitions.sql.parser import parse_definitions
from tests.support.containers.system import IMAGES

ROOT = Path(__file__).parents[4]
COMPOSE = ROOT / "docker-compose.yml"
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document = yaml.safe_load(COMPOSE.read_text())
    assert isinstance(document, dict)
    return document


def config(compose: dict[str, Any], name: str) -> str:
    """The text of one of the file's configs."""
    return Path(ROOT, compose["configs"][name]["file"]).read_text()


def stages() -> dict[str, str]:
    text = (ROOT / "Dockerfile").read_text()
    parts = re.split(r"^FROM (\S+) AS (\S+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[2::3], parts[3::3], strict=True))


def test_every_service_says_when_it_is_healthy(compose: dict[str, Any]) -> None:
    without = [name for name, s in compose["services"].items() if not s["healthcheck"]["test"]]

    assert without == []


def test_every_service_has_a_tagged_image_or_a_stage_of_the_dockerfile(
    compose: dict[str, Any],
) -> None:
    for service in compose["services"].values():
        if "image" in service:
            assert re.fullmatch(r"[a-z/-]+:v?\d[\w.]*(@sha256:[0-9a-f]{64})?", service["image"])
        else:
            assert service["build"]["target"] in stages()


def test_what_services_refer_to_is_declared(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert {v.split(":")[0] for v in service.get("volumes", [])} <= set(compose["volumes"])
        assert {c["source"] for c in service.get("configs", [])} <= set(compose["configs"])
        assert set(service.get("depends_on", {})) <= set(services)


def test_configs_are_files(compose: dict[str, Any]) -> None:
    # Compose refuses to write a config's `content` into a container with a read-only root.
    assert compose["configs"]
    for found in compose["configs"].values():
        assert list(found) == ["file"]
        assert (ROOT / found["file"]).is_file()


def test_no_service_has_more_rights_than_it_needs_or_fills_the_disk_with_logs(
    compose: dict[str, Any],
) -> None:
    for name, service in compose["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert "cap_add" not in service or name == "postgres"
        # They write elsewhere, too.
        assert service.get("read_only", False) is (name not in ("kafka", "registry", "grafana"))


def test_the_project_s_own_services_write_where_their_settings_say(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "pgsluice.toml").write_text(config(compose, "settings"))
    settings = load_settings(tmp_path / "pgsluice.toml", {"PGSLUICE_SOURCE__DSN": "dbname=shop"})

    def writable(service: str) -> set[str]:
        found = compose["services"][service]
        mounts = [volume.split(":")[1] for volume in found["volumes"]]
        return {*mounts, *(mount.partition(":")[0] for mount in found["tmpfs"])}

    assert {"/tmp", str(settings.gateway.spool_directory)} == writable("gateway")
    own = {"/tmp", settings.consumer.warehouse, settings.consumer.checkpoint}
    assert own | {"/var/lib/pgsluice"} == writable("consumer")
    assert f"mkdir {settings.gateway.spool_directory}" in stages()["gateway"]


def test_ports_are_open_to_this_machine_only(compose: dict[str, Any]) -> None:
    ports = [port for s in compose["services"].values() for port in s.get("ports", [])]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_settings_are_ones_that_the_gateway_reads(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    for name, file in (("settings", "pgsluice.toml"), ("replication", "replication.sql")):
        (tmp_path / file).write_text(config(compose, name))

    settings = load_settings(
        tmp_path / "pgsluice.toml", {"PGSLUICE_SOURCE__DSN": "postgresql://postgres/shop"}
    )

    assert settings.definitions.file == tmp_path / "replication.sql"
    assert settings.http.listen is not None
    port = settings.http.listen.rpartition(":")[2]
    gateway = compose["services"]["gateway"]
    assert f":{port}/readyz" in str(gateway["healthcheck"]["test"])
    assert gateway["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_prometheus_reads_where_gateway_and_spark_job_listen(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "pgsluice.toml").write_text(config(compose, "settings"))
    settings = load_settings(tmp_path / "pgsluice.toml", {"PGSLUICE_SOURCE__DSN": "dbname=shop"})
    prometheus = yaml.safe_load(config(compose, "prometheus"))
    (job,) = prometheus["scrape_configs"]

    listening = {
        "gateway": settings.http.listen,
        "consumer": settings.consumer.metrics_listen,
    }
    assert job["static_configs"][0]["targets"] == [
        f"{service}:{str(listen).rpartition(':')[2]}" for service, listen in listening.items()
    ]
    names = [mount["target"] for mount in compose["services"]["prometheus"]["configs"]]
    assert {Path(name).name for name in names} >= set(prometheus["rule_files"])


def test_the_definitions_are_ones_that_the_gateway_reads(compose: dict[str, Any]) -> None:
    definitions = parse_definitions(config(compose, "replication"))

    assert [s.name for s in definitions.subscriptions] == ["nsw", "vic"]


def test_images_run_as_an_ordinary_user() -> None:
    for target in ("gateway", "consumer", "spark"):
        # By number: Kubernetes cannot tell whether a name is root.
        assert "\nUSER 10001:10001\n" in stages()[target]
    assert "--gid 10001" in stages()["python"]


def test_an_image_has_one_environment_and_nothing_that_installs_packages() -> None:
    text = (ROOT / "Dockerfile").read_text()
    built_on = {stage: base for base, stage in re.findall(r"^FROM (\S+) AS (\S+)$", text, re.M)}

    assert re.search(r"pip uninstall .*\bpip$", stages()["runtime"], re.MULTILINE)
    assert built_on["consumer"] == built_on["spark"] == "job"
    for target, stage in (("gateway", "gateway"), ("consumer", "job")):
        assert built_on[stage] == "runtime"
        assert re.findall(r"--from=(\S+)", stages()[stage]) == [f"{target}-packages"]
        assert f"venv --without-pip /opt/{target}" in stages()[f"{target}-packages"]
        # Neither is built for the other.
        assert built_on[f"{target}-packages"] == "build"
    assert "requirements-gateway" not in stages()["build"] + stages()["consumer-packages"]
    assert "requirements-consumer" not in stages()["build"] + stages()["gateway-packages"]


def test_every_image_is_built_by_the_tests_in_containers_and_by_a_release() -> None:
    targets = {name for name, stage in stages().items() if "\nUSER " in stage}
    workflows = {
        path.stem: yaml.safe_load(path.read_text())["jobs"]
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    tiers = re.search(r"^TIERS_OF_TESTS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert targets == set(IMAGES)
    assert targets == set(workflows["release"]["images"]["strategy"]["matrix"]["target"])
    assert {"run": "make test-containers"} in workflows["test"]["containers"]["steps"]
    # They take an engine and minutes: neither make test nor .ci/run waits for them.
    assert tiers is not None and "containers" not in tiers[1].split()


def test_an_init_passes_signals_on_from_the_first_instant() -> None:
    for target in ("gateway", "consumer"):
        assert 'ENTRYPOINT ["tini", "-e", "143", "--", "pgsluice"]' in stages()[target]
    assert "install -y --no-install-recommends tini" in stages()["python"]
    assert (
        'exec tini -e 143 -- "$@"' in (ROOT / "deploy/kubernetes/spark/entrypoint.sh").read_text()
    )


def test_the_consumers_health_is_asked_of_the_job(compose: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "pgsluice.toml").write_text(config(compose, "settings"))
    settings = load_settings(tmp_path / "pgsluice.toml", {"PGSLUICE_SOURCE__DSN": "dbname=shop"})
    port = str(settings.consumer.metrics_listen).rpartition(":")[2]

    assert f":{port}/readyz" in str(compose["services"]["consumer"]["healthcheck"]["test"])


def test_commands_find_the_configuration_of_the_containers(compose: dict[str, Any]) -> None:
    for service in ("gateway", "consumer"):
        targets = [mount["target"] for mount in compose["services"][service]["configs"]]

        assert "/etc/pgsluice/pgsluice.toml" in targets


def test_the_registry_is_free_software_and_the_one_that_is_tested(compose: dict[str, Any]) -> None:
    name, _, version = compose["services"]["registry"]["image"].partition("@")[0].partition(":")
    manifest = (ROOT / "ivy.xml").read_text()

    assert name == "apicurio/apicurio-registry"
    assert f'name="apicurio-registry-app" rev="{version}"' in manifest
    assert API_PATH in config(compose, "settings")


def test_every_file_that_the_dockerfile_copies_is_let_through_by_dockerignore() -> None:
    let_through = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = {
        name
        for stage in stages().values()
        for line in stage.splitlines()
        if line.startswith("COPY ") and "--from=" not in line
        for name in line.split()[1:-1]
    }

    assert copied == let_through
    assert [name for name in sorted(copied) if not (ROOT / name).exists()] == []


def test_images_install_the_versions_that_were_tested() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / name).read_text()
        return set(re.findall(r"^([\w.-]+==\S+)", text, flags=re.MULTILINE))

    assert pins("requirements-gateway.lock") < pins("requirements.lock")
    assert pins("requirements-consumer.lock") < pins("requirements.lock")
    assert pins("requirements-build.lock") < pins("requirements.lock")


def test_jars_belong_to_the_installed_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = dict(pin.split("==") for pin in project["optional-dependencies"]["spark"])
    manifest = (ROOT / "ivy.xml").read_text()

    assert f'name="spark-sql-kafka-0-10_2.13" rev="{versions["pyspark"]}"' in manifest
    assert f'rev="{versions["delta-spark"]}"' in manifest


def test_no_tracked_configuration_names_a_package_host() -> None:
    for name in ("pyproject.toml", "ivy.xml", "Dockerfile", "Makefile", *LOCKS):
        text = (ROOT / name).read_text()
        assert not re.search(r"pypi\.org|pythonhosted|maven\.org|index-url", text)


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker client")
def test_docker_compose_accepts_the_file() -> None:
    version = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if version.returncode != 0:
        pytest.skip("this docker client has no compose")

    subprocess.run(
        ["docker", "compose", "-f", COMPOSE, "config", "--quiet"],
        check=True,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "POSTGRES_PASSWORD": "x"},
    )
