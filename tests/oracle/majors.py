"""On which servers each function of a filter is asked for.

``PGSLUICE_ORACLE_MAJORS=15,16,18`` asks all of them. By default it is the newest alone: the catalog
test and the random filters ask 16 and 18 for every function in any case.
"""

from __future__ import annotations

import os

__all__ = ["MAJORS"]

MAJORS = [int(major) for major in os.environ.get("PGSLUICE_ORACLE_MAJORS", "18").split(",")]
