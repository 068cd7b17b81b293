"""Write ``ivy.sha256``: what ``make jars`` runs after a change of ``ivy.xml``.

Each configuration is resolved, and the files that the repository gives now are what is believed
from then on. Look at the difference before you commit it: a file whose version has not changed has
the checksum that it had.
"""

from __future__ import annotations

import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

from gateway.jars.checksums import lines_of
from gateway.jars.ivy import manifest_path, retrieve

CHECKSUMS: Final = Path(__file__).resolve().parent.parent / "ivy.sha256"


def configurations(manifest: Path) -> list[str]:
    """Return the configurations of a manifest, sorted."""
    tree = ElementTree.parse(manifest)  # noqa: S314 - our own file, not input
    found = {one.get("conf", "").split("->", 1)[0] for one in tree.iter("dependency")}
    return sorted(found)


def main() -> int:
    """Resolve all configurations and write the list; the exit code."""
    manifest = manifest_path()
    lines: list[str] = []
    for configuration in configurations(manifest):
        print(f"jars: {configuration}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            retrieve(manifest, configuration, Path(folder))
            lines += lines_of(configuration, Path(folder))
    CHECKSUMS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
