"""Fixtures for every tier: real servers, started on first use, once in a run.

``postgres_major`` is 18 unless a test says otherwise::

    @pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
    def test_...(database): ...
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from gateway.jars import ivy as jars
from gateway.jars.java import java_home
from tests.support.backends.servers import (
    LONG_JAVA,
    Database,
    DatabaseFactory,
    PostgresServer,
    Servers,
)
from tests.support.backends.shared_servers import ServerHub, SharedServers, given_servers
from tests.support.run import environment
from tests.support.run.durations import Durations, path_to_write
from tests.support.run.seeds import SEED
from tests.support.run.work_queue import LongestFirst, Order, groups
from tools import build_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent

# The seed alone decides what is tried: no clock, and nothing that an earlier run has left behind.
hypothesis.settings.register_profile(
    "dev",
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
for _name, _examples in (("ci", 200), ("deep", 5000)):
    hypothesis.settings.register_profile(
        _name, hypothesis.settings.get_profile("dev"), max_examples=_examples
    )
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
)

_servers = pytest.StashKey[Servers | SharedServers]()
_hub = pytest.StashKey[ServerHub]()
_passed = pytest.StashKey[Counter[str]]()
_durations = pytest.StashKey[Durations]()
_interpreted = pytest.StashKey[str | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-tiers",
        default="",
        help="comma-separated folders of tests/; the run fails when no test of one of them passed",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # The one tier that builds images, and may start a container engine: only where it is named.
    folder = TESTS / "containers"
    if collection_path == folder and not any(p.is_relative_to(folder) for p in _paths(config)):
        return True
    return None


def _paths(config: pytest.Config) -> Iterator[Path]:
    """The folders and files that the run was asked for."""
    for argument in config.args:
        yield (config.invocation_params.dir / argument.partition("::")[0]).resolve()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Before the plugins read them: the order of the tests, and what hypothesis tries.
    if config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = SEED
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(SEED)
    config.stash[_passed] = Counter()
    given = _given(config)
    if given is None:
        up = given_servers()
        servers = config.stash[_servers] = Servers() if up is None else SharedServers(up)
        if config.getoption("numprocesses", None):
            config.stash[_hub] = ServerHub(servers)
        # In this tree, which need not be the one that is installed; gateways are started from it.
        config.stash[_interpreted] = build_rows.build()
    else:
        config.stash[_servers] = SharedServers(given["hub"])
        config.pluginmanager.register(Order(), "order")
        config.stash[_interpreted] = given["interpreted"]
    config.stash[_durations] = Durations("servers" if given is None else given["workerid"])
    config.pluginmanager.register(config.stash[_durations], "durations")


def _given(config: pytest.Config) -> dict[str, Any] | None:
    """What the process that hands out the tests has given this one; None: there is no other."""
    return getattr(config, "workerinput", None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["hub"] = node.config.stash[_hub].address
    node.workerinput["interpreted"] = node.config.stash[_interpreted]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst:
    return LongestFirst(config, log, config.stash[_hub].groups)


def pytest_unconfigure(config: pytest.Config) -> None:
    # The fixture has stopped them already; this is for a run that ends before its fixtures do.
    if _servers in config.stash:
        config.stash[_servers].stop()
    if _hub in config.stash:
        config.stash[_hub].close()
    path = path_to_write()
    if path is not None and _durations in config.stash and _given(config) is None:
        config.stash[_durations].write(path)


def pytest_report_header(config: pytest.Config) -> str:
    why = config.stash[_interpreted]
    rows = "compiled" if why is None else f"interpreted: {why}"
    return f"PGSLUICE_SEED={SEED}; servers: {config.stash[_servers].describe()}; rows {rows}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        drawn = "seed" in getattr(item, "fixturenames", ())
        if drawn or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.seeded)


@pytest.hookimpl(tryfirst=True)  # before xdist says that the units may be handed out
def pytest_collection_finish(session: pytest.Session) -> None:
    servers = session.config.stash[_servers]
    if _given(session.config) is not None and isinstance(servers, SharedServers):
        servers.say_groups(groups(session.items))


class _TierCount:
    """Counts the tests that passed, by tier; fails a run in which a tier ran nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self._passed = config.stash[_passed]
        self._output = config.get_terminal_writer()
        wanted = str(config.getoption("--require-tiers"))
        self._required = [tier for tier in wanted.split(",") if tier]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed[_tier(report.nodeid)] += 1
        elif report.failed:
            # At once: the report comes in the end, or never when somebody stops the run.
            lines = report.longreprtext.splitlines() or ["?"]
            said = [line for line in lines if line.startswith("E  ")]
            why = " ".join(
                [lines[-1], *(line[1:].strip()[:300] for line in said[:1] + said[1:][-2:])]
            )
            self._output.line(f"\nFAILED {report.nodeid} ({report.when}): {why}", red=True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._empty() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts = ", ".join(f"{tier} {self._passed[tier]}" for tier in sorted(self._passed))
        terminalreporter.write_line(f"passed by tier: {counts or 'none'}")
        if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
            terminalreporter.write_line(f"the machine: {environment.describe()}")
            for shortage in environment.shortages():
                terminalreporter.write_line(f"it may be the machine: {shortage}", red=True)
        for tier in self._empty():
            terminalreporter.write_line(f"FAILED: no test of tests/{tier} passed", red=True)

    def _empty(self) -> list[str]:
        return [tier for tier in self._required if not self._passed[tier]]


def _tier(nodeid: str) -> str:
    parts = nodeid.split("::", 1)[0].split("/")
    return parts[1] if len(parts) > 2 else parts[-1]


def pytest_sessionstart(session: pytest.Session) -> None:
    if _given(session.config) is None:
        session.config.pluginmanager.register(_TierCount(session.config), "tier-count")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["durations"] = json.loads(json.dumps(session.config.stash[_durations].collected()))


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    """Puts the root logger back, which every command sets up, so that no later test has it so."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def seed() -> int:
    """What a test draws its random cases from; `make explore` gives new ones."""
    return SEED


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers | SharedServers]:
    """Every server of the run; for tests that choose among them at run time."""
    running = pytestconfig.stash[_servers]
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def postgres_major(request: pytest.FixtureRequest) -> int:
    """The major version of the server that `postgres` and `database` are on."""
    return int(getattr(request, "param", 18))


@pytest.fixture(scope="session")
def postgres(servers: Servers | SharedServers, postgres_major: int) -> PostgresServer:
    """The run's PostgreSQL server of version `postgres_major`, shared by all tests."""
    return servers.postgres(postgres_major)


@pytest.fixture
def make_database(postgres: PostgresServer) -> Iterator[DatabaseFactory]:
    """Call it for a fresh database; all are dropped afterwards, with slots and subscriptions."""
    factory = DatabaseFactory(postgres)
    try:
        yield factory
    finally:
        factory.drop_all()


@pytest.fixture
def database(make_database: DatabaseFactory) -> Database:
    """A fresh database on `postgres`, dropped afterwards with its slots and subscriptions."""
    return make_database()


@pytest.fixture(scope="session")
def kafka(servers: Servers | SharedServers) -> str:
    """``bootstrap.servers`` of the run's broker, shared by all: use topic names of your own."""
    return servers.kafka()


@pytest.fixture(scope="session")
def registry(servers: Servers | SharedServers) -> str:
    """URL of the run's schema registry, shared by all tests: use subjects of your own."""
    return servers.registry()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The run's one Spark session, with Delta and the Kafka connector; takes some ten seconds."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from spark_consumer.spark.jvm_names import remember_names
    from spark_consumer.spark.session import ALIVE, LOCAL_FILES, TUNED

    folder = tmp_path_factory.mktemp("spark")
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **TUNED,
        **ALIVE,
        **LOCAL_FILES,
        "spark.driver.extraClassPath": ":".join(
            str(jar) for name in ("spark", "iceberg", "jdbc") for jar in jars.jars(name)
        ),
        "spark.sql.shuffle.partitions": "2",
        # Otherwise VACUUM lists the folder of a table by 10,000 tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": (
            f"-Duser.timezone=UTC -Dderby.system.home={folder} {LONG_JAVA}"
        ),
        "spark.local.dir": str(folder / "local"),
    }
    builder = SparkSession.builder.master("local[2]").appName("pgsluice tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    remember_names(session)
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
        # The JVM ends when its standard input does; wait, so that the run leaves no process.
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        jvm: subprocess.Popen[bytes] = gateway.proc
        if jvm.stdin is not None:
            jvm.stdin.close()
        jvm.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
