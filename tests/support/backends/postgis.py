"""A PostgreSQL server with PostGIS, where the machine has one: Debian's and Ubuntu's packages.

No server of the other tests has the extension. With ``PGSLUICE_REQUIRE_POSTGIS=1`` a missing one is
a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from devkit.embedded.postgres import MAJORS, EmbeddedPostgres
from tests.support.backends.servers import LocalPostgres

__all__ = ["installation", "postgis_server"]

_INSTALLATIONS: Final = Path("/usr/lib/postgresql")


def installation() -> tuple[int, Path] | None:
    """Return major version and folder of the newest installation with PostGIS."""
    folders = ((major, _INSTALLATIONS / str(major)) for major in MAJORS)
    return max((one for one in folders if (one[1] / "lib/postgis-3.so").is_file()), default=None)


@contextmanager
def postgis_server() -> Iterator[LocalPostgres]:
    """Start a server; skip the test, or let it fail, where there is none."""
    found = installation()
    if found is None:
        if os.environ.get("PGSLUICE_REQUIRE_POSTGIS", "0") not in ("", "0"):
            pytest.fail("PGSLUICE_REQUIRE_POSTGIS is set, and there is no PostGIS")
        pytest.skip("no PostGIS is installed here (Debian: postgresql-15-postgis-3)")
    major, folder = found
    with EmbeddedPostgres(major, trust_roles=True, installation=folder) as server:
        yield LocalPostgres(server)
