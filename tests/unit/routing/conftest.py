"""Every test of routing runs with both forms of the row path, where the compiled one was built."""

from __future__ import annotations

import pytest

from gateway._speedups.loader import INTERPRETED
from gateway.routing.row.native import why_not_built

FORMS = ("interpreted", "compiled") if why_not_built() is None else ("interpreted",)


@pytest.fixture(autouse=True, params=FORMS)
def row_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The form in which rows are routed."""
    form = str(request.param)
    monkeypatch.setenv(INTERPRETED, "1" if form == "interpreted" else "0")
    return form
