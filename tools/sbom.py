"""Software bill of materials in CycloneDX's format: ``python tools/sbom.py > pgsluice.cdx.json``.

It is made from what is committed, and asks nobody: packages and their hashes from the lock files
of the images, jars from ``ivy.xml`` and ``ivy.sha256``, licences from ``docs/third-party.md``. The
same commit gives the same document.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("requirements-gateway.lock", "requirements-consumer.lock")
CONFIGURATIONS: Final = ("spark", "iceberg", "jdbc", "s3")
_PIN: Final = re.compile(r"^([\w.-]+)==([^\s;\\]+)((?:[^\n]*\\\n)+[^\n]*)", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LICENCE: Final = re.compile(r"^\| ([\w.-]+) \| ([^|]+) \|$", re.MULTILINE)
_JAR: Final = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.]*)\.jar")


def document() -> dict[str, Any]:
    """Return the whole of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    components = sorted([*packages(), *jars()], key=lambda one: str(one["bom-ref"]))
    main = f"pkg:pypi/{project['name']}@{project['version']}"
    # By the contents, so that it can be made again and compared.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, main + json.dumps(components))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": main,
                "name": project["name"],
                "version": project["version"],
                "purl": main,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": main, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def packages() -> Iterator[dict[str, Any]]:
    """Yield the packages of the images, each once."""
    pins: dict[str, tuple[str, list[str]]] = {}
    for lock in LOCKS:
        for name, version, rest in _PIN.findall((ROOT / lock).read_text()):
            pins[re.sub(r"[-_.]+", "-", name).lower()] = (version, _HASH.findall(rest))
    known = licences()
    for name, (version, hashes) in pins.items():
        yield _component(name, version, f"pkg:pypi/{name}@{version}", known[name], hashes)


def jars() -> Iterator[dict[str, Any]]:
    """Yield the jars of the consumer's image and of ``make dist S3=1``."""
    groups = {
        one.get("name"): one.get("org")
        for one in ElementTree.parse(ROOT / "ivy.xml").iter("dependency")  # noqa: S314 - our own
    }
    known = licences()
    for line in (ROOT / "ivy.sha256").read_text().splitlines():
        digest, _, place = line.partition("  ")
        configuration, _, file = place.partition("/")
        found = _JAR.fullmatch(file)
        if configuration in CONFIGURATIONS and found is not None:
            name, version = found["name"], found["version"]
            group = groups.get(name)
            # What only another jar asks for is known by its file.
            purl = f"pkg:maven/{group}/{name}@{version}" if group else f"pkg:generic/{file}"
            yield _component(name, version, purl, known[name], [digest])


def licences() -> dict[str, str]:
    """Return the SPDX expression of each package and jar, by name."""
    text = (ROOT / "docs" / "third-party.md").read_text()
    return {
        name: licence for name, licence in _LICENCE.findall(text) if name not in ("name", "---")
    }


def _component(
    name: str, version: str, purl: str, licence: str, hashes: list[str]
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"expression": licence}],
    }
    if len(hashes) == 1:
        made["hashes"] = [{"alg": "SHA-256", "content": hashes[0]}]
    else:  # one for each platform's file; the one that is installed is one of them
        made["properties"] = [{"name": "pgsluice:sha256", "value": each} for each in hashes]
    return made


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2)
    sys.stdout.write("\n")
