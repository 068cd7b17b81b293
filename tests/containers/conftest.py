"""The whole system in containers: images built, services up and healthy, once for the tier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.containers.client_plugins import install
from tests.support.containers.engine import NoEngineError, engine
from tests.support.containers.stand_ins import build_stand_ins
from tests.support.containers.system import System

_figures = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def images(pytestconfig: pytest.Config) -> Iterator[System]:
    """The three images; no service runs yet. All that was made is removed afterwards."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        # Minutes, the first time: each step is said when it is done.
        shown = stack.enter_context(ExitStack())
        if capture is not None:
            shown.enter_context(capture.global_and_fixture_disabled())
        try:
            running = stack.enter_context(engine())
            if running.own is not None:
                build_stand_ins(running, install(running.own))
            system = System(running)
            stack.callback(lambda: pytestconfig.stash.setdefault(_figures, system.report()))
            stack.callback(system.remove_images)
            stack.callback(system.down)
            system.down()
            system.build()
        except (NoEngineError, AssertionError) as error:
            # Once, and not for every test: none of them can run.
            pytest.exit(f"test-containers: {error}", returncode=1)
        shown.close()
        yield system


@pytest.fixture(scope="session")
def system(images: System) -> System:
    """All services of docker-compose.yml, healthy. A test leaves them so."""
    try:
        images.up()
    except AssertionError as error:
        pytest.fail(f"{error}\n{images.logs()}", pytrace=False)
    return images


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(_figures, []):
        terminalreporter.write_line(f"containers: {line}")
