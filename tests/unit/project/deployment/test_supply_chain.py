"""Supply chain: everything pinned, checked, listed, and under licences that may be used."""

from __future__ import annotations

import importlib.metadata
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.core.errors import ConfigError
from gateway.jars.checksums import lines_of, read_checksums, verify
from tools import pins, sbom
from tools.lock_jars import CHECKSUMS, configurations

ROOT = Path(__file__).resolve().parents[4]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MANIFEST = ROOT / "ivy.xml"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
COMMIT = "11bd71901bbe5b1630ceea73d27597364c9af683"
DIGEST = f"sha256:{EMPTY}"


def steps() -> list[tuple[str, dict[str, Any]]]:
    """Each step of each workflow, with the file it is in."""
    return [
        (workflow.name, step)
        for workflow in WORKFLOWS
        for job in yaml.safe_load(workflow.read_text())["jobs"].values()
        for step in job["steps"]
    ]


def test_every_action_is_pinned_by_commit_and_says_which_version_that_is() -> None:
    assert WORKFLOWS == pins.WORKFLOWS
    for workflow in WORKFLOWS:
        assert list(pins.unpinned_actions(workflow.read_text())) == []
        # One pin for one action.
        used = re.findall(r"uses: (\S+)@(\S+ # \S+)", workflow.read_text())
        assert len(set(used)) == len({name for name, _ in used})


def test_no_expression_stands_in_a_command() -> None:
    # A secret there is written into the command's text; a value of others is run.
    commands = [(name, step["run"]) for name, step in steps() if "run" in step]

    assert commands
    assert [(name, command) for name, command in commands if "${{" in command] == []


def test_jobs_have_the_rights_they_need_and_checkouts_keep_no_token() -> None:
    wider = {}
    for workflow in WORKFLOWS:
        document = yaml.safe_load(workflow.read_text())
        assert document["permissions"] == {}, workflow.name
        for name, job in document["jobs"].items():
            if job["permissions"] != {"contents": "read"}:
                wider[name] = job["permissions"]
    assert wider == {
        "publish": {"contents": "write", "id-token": "write", "attestations": "write"},
        "images": {"contents": "read", "id-token": "write"},
    }
    for _, step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_packages_are_installed_with_hashes() -> None:
    texts = [step["run"] for _, step in steps() if "run" in step]
    texts += [value for _, step in steps() for value in step.get("env", {}).values()]
    texts += (ROOT / "Dockerfile").read_text().replace("\\\n", " ").split("&&")
    install = re.compile(r"\bpip (--python \S+ )?install\b")
    installs = [line for text in texts for line in text.splitlines() if install.search(line)]

    assert len(installs) >= 6
    for line in installs:
        # The wheel that was just built from this tree is the one thing without a hash.
        assert "--require-hashes -r " in line or re.search(r"--no-deps /?wheels/", line), line


def test_wheels_are_built_by_locked_tools() -> None:
    lock = (ROOT / "requirements-build.lock").read_text()
    wanted = (ROOT / "requirements-build.in").read_text().split()
    build = re.findall(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)

    assert re.findall(r'"([^"]+)"', build[0]) == wanted
    assert all(f"{pin} \\\n    --hash=sha256:" in lock for pin in wanted)
    assert "--no-build-isolation" in (ROOT / "Dockerfile").read_text()
    assert "--no-build-isolation" in (ROOT / ".github/workflows/release.yml").read_text()


def test_what_has_no_pin_is_named(tmp_path: Path) -> None:
    workflow = f"- uses: a/b@{COMMIT} # v4.2.2\n- uses: c/d@v3\n- uses: e/f@{COMMIT}\n"
    dockerfile = f"# syntax=docker/dockerfile:1\nFROM x/y:1@{DIGEST} AS a\nFROM a AS b\nUSER 1:1\n"
    compose = "services:\n  s:\n    image: postgres:18\n    ports: ['1:1']\n"

    assert list(pins.unpinned_actions(workflow)) == ["c/d@v3", f"e/f@{COMMIT}"]
    assert list(pins.unpinned_images(dockerfile)) == ["docker/dockerfile:1"]
    assert list(pins.unpinned_images(compose)) == ["postgres:18"]


def test_pins_are_written_beside_the_tag_and_what_does_not_answer_stays() -> None:
    def digest(name: str) -> str | None:
        return DIGEST if name == "postgres:18" else None

    assert pins.pin_images("    image: postgres:18\n    image: other:1\n", digest) == (
        f"    image: postgres:18@{DIGEST}\n    image: other:1\n"
    )
    old = f"    image: postgres:18@sha256:{'0' * 64}\n"
    assert pins.pin_images(old, digest) == f"    image: postgres:18@{DIGEST}\n"

    listing = "".join(
        f"{letter * 40}\trefs/tags/{tag}\n"
        for letter, tag in (
            ("a", "v4"), ("b", "v4.9.0"), ("c", "v4.10.1"), ("d", "v4.10.1^{}"), ("e", "v5.0.0")
        )
    )  # fmt: skip
    assert pins.newest(listing, "v4") == ("d" * 40, "v4.10.1")
    assert pins.newest(listing, "v7") is None

    def commit(repository: str, major: str) -> tuple[str, str] | None:
        return pins.newest(listing, major) if repository == "a/b" else None

    workflow = f"- uses: a/b/sub@{COMMIT} # v4.2.2\n- uses: c/d@v3\n"
    assert pins.pin_actions(workflow, commit) == (
        f"- uses: a/b/sub@{'d' * 40} # v4.10.1\n- uses: c/d@v3\n"
    )


def test_releases_refuse_what_has_no_pin() -> None:
    assert "python3 tools/pins.py check" in [step.get("run") for _, step in steps()]


@pytest.mark.parametrize("configuration", configurations(MANIFEST))
def test_every_jar_that_the_manifest_names_has_a_checksum(configuration: str) -> None:
    known = read_checksums(CHECKSUMS, configuration)

    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in known.values())
    for one in ElementTree.parse(MANIFEST).iter("dependency"):
        if one.get("conf", "").split("->")[0] == configuration:
            begin = f"{one.get('name')}-{one.get('rev')}"
            assert [name for name in known if name.startswith(begin)], begin


def test_no_checksum_is_of_what_is_not_in_the_manifest() -> None:
    places = [line.partition("  ")[2] for line in CHECKSUMS.read_text().splitlines()]

    assert {place.partition("/")[0] for place in places} == set(configurations(MANIFEST))
    assert len(places) == len(set(places))


def test_a_jar_that_is_another_one_is_refused_by_name(tmp_path: Path) -> None:
    jar = tmp_path / "a-1.jar"
    jar.write_bytes(b"")
    known = {"a-1.jar": EMPTY}

    verify("kafka", tmp_path, known)
    assert list(lines_of("kafka", tmp_path)) == [f"{EMPTY}  kafka/a-1.jar"]

    jar.write_bytes(b"other")
    with pytest.raises(
        ConfigError, match=f"a-1.jar of configuration kafka has the SHA-256 .*{EMPTY}"
    ):
        verify("kafka", tmp_path, known)
    with pytest.raises(ConfigError, match=r"a-1\.jar of configuration kafka is not in the list"):
        verify("kafka", tmp_path, {})
    jar.unlink()
    with pytest.raises(ConfigError, match=r"a-1\.jar of configuration kafka was not fetched"):
        verify("kafka", tmp_path, known)


def test_a_list_without_the_configuration_or_no_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"none\.sha256, the checksums of the jars, cannot be read"
    ):
        read_checksums(tmp_path / "none.sha256", "kafka")
    (tmp_path / "ivy.sha256").write_text(f"{EMPTY}  spark/a.jar\n")
    with pytest.raises(ConfigError, match=r"lists no file of configuration 'kafka'"):
        read_checksums(tmp_path / "ivy.sha256", "kafka")


ALLOWED = {
    "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "ZPL-2.1",
    # One may be used with what is under another licence: docs/third-party.md says how.
    "LGPL-3.0-only",
}  # fmt: skip
LGPL = {"psycopg", "psycopg-binary"}


def locked(*names: str) -> set[str]:
    """The packages of lock files, under their normal names."""
    texts = [(ROOT / name).read_text() for name in names]
    found = {name for text in texts for name in re.findall(r"^([\w.-]+)==", text, re.M)}
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found}


def test_the_licence_of_everything_that_is_locked_is_known_and_allowed() -> None:
    listed = sbom.licences()
    packages = locked(*(path.name for path in ROOT.glob("requirements*.lock")))
    jars = {re.sub(r"-\d[\w.]*\.jar$", "", name) for name in shipped_jars()}

    # A new package or jar needs its line in docs/third-party.md.
    assert set(listed) == packages | jars
    for name, licence in listed.items():
        assert set(re.split(r" (?:OR|AND) ", licence)) <= ALLOWED, name
    assert {name for name, licence in listed.items() if "GPL" in licence} == LGPL


def shipped_jars() -> list[str]:
    return [name for each in sbom.CONFIGURATIONS for name in read_checksums(CHECKSUMS, each)]


def test_no_installed_package_says_of_itself_that_it_is_under_the_gpl() -> None:
    for name in sorted(locked("requirements.lock")):
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another system
        said = metadata.get_all("License-Expression") or metadata.get_all("License") or []
        said += [each for each in metadata.get_all("Classifier") or [] if "License" in each]
        found = [each for each in said if re.search(r"GPL|GNU|Affero", each.partition("\n")[0])]
        assert found == (["LGPL-3.0-only"] if name in LGPL else []), name


def test_the_bill_of_materials_names_all_that_is_shipped_and_is_made_again_alike() -> None:
    document = sbom.document()
    components = document["components"]

    assert document == sbom.document()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    references = [component["bom-ref"] for component in components]
    assert len(references) == len(set(references))
    assert document["dependencies"][0]["dependsOn"] == references
    pypi = {one["name"] for one in components if one["purl"].startswith("pkg:pypi/")}
    assert pypi == locked(*sbom.LOCKS)
    known = {name: digest for each in sbom.CONFIGURATIONS
             for name, digest in read_checksums(CHECKSUMS, each).items()}  # fmt: skip
    hashes = {f"{one['name']}-{one['version']}.jar": one["hashes"][0]["content"]
              for one in components if not one["purl"].startswith("pkg:pypi/")}  # fmt: skip
    assert hashes == known
    assert "pkg:maven/io.delta/delta-storage@4.4.0" in references
    for one in components:
        assert one["version"] and one["licenses"][0]["expression"]
        assert "hashes" in one or one["properties"]


def test_each_release_has_its_bill_of_materials() -> None:
    commands = [step.get("run", "") for name, step in steps() if name == "release.yml"]

    assert any("tools/sbom.py > " in command for command in commands)


def test_what_asks_for_more_than_to_be_named_is_named() -> None:
    text = (ROOT / "docs" / "third-party.md").read_text()

    assert "**psycopg** (LGPL-3.0-only)" in text
    assert "Confluent Community License" in text
    assert "docs/third-party.md" in (ROOT / "NOTICE").read_text()
    assert "confluentinc" not in (ROOT / "docker-compose.yml").read_text()
