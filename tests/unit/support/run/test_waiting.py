"""A wait that fails, which says why where anything knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gateway.process import GatewayProcess
from tests.support.run.waiting import wait_until


def test_a_wait_that_fails_says_how_a_gateway_has_ended(tmp_path: Path) -> None:
    with GatewayProcess(["run", "--config", str(tmp_path / "none.toml")]) as gateway:
        assert gateway.wait() != 0

        with pytest.raises(AssertionError, match=r"(?s)for the end of time.*has ended with \d+"):
            wait_until(lambda: False, 0, "the end of time")
        with pytest.raises(AssertionError, match=r"none\.toml"):
            wait_until(lambda: False, 0, "the end of time")

    with pytest.raises(AssertionError, match=r"\)$"):
        wait_until(lambda: False, 0, "the end of time")
