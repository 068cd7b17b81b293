"""Settings of a session that the job makes itself."""

from __future__ import annotations

import pytest

from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.session import LOCAL_FILES, session_settings

JARS = ("/j/a.jar", "/j/own.jar")


@pytest.fixture(autouse=True)
def _not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def made(jars: tuple[str, ...] = JARS, **spark: str) -> dict[str, str]:
    given = {name.replace("__", "."): value for name, value in spark.items()}
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse="w", checkpoint="c", spark=given
    )
    return session_settings(jars, settings)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_one_process_has_the_jars_in_its_class_path_and_local_files(master: str) -> None:
    found = made(spark__master=master)

    assert found["spark.driver.extraClassPath"] == "/j/a.jar:/j/own.jar"
    assert "spark.jars" not in found
    assert found.items() >= LOCAL_FILES.items()


@pytest.mark.parametrize("master", ["spark://m:7077", "local-cluster[2,1,1024]", "yarn"])
def test_executors_of_a_cluster_get_the_jars_and_no_class_that_they_lack(master: str) -> None:
    found = made(spark__master=master)

    assert found["spark.jars"] == "/j/a.jar,/j/own.jar"
    assert not found.keys() & {"spark.driver.extraClassPath", *LOCAL_FILES}


def test_a_class_path_of_the_users_is_kept_behind_the_jars() -> None:
    found = made(spark__driver__extraClassPath="/x.jar")

    assert found["spark.driver.extraClassPath"] == "/j/a.jar:/j/own.jar:/x.jar"


def test_jars_of_the_users_alone_are_left_to_spark() -> None:
    found = made((), spark__jars="/x.jar")

    assert found["spark.jars"] == "/x.jar"
    assert not found.keys() & LOCAL_FILES.keys()


def test_spark_submit_has_set_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    assert made(spark__executor__memory="1g") == {"spark.executor.memory": "1g"}


def test_the_jvm_of_one_process_gives_memory_back_unless_told_otherwise() -> None:
    options = made()["spark.driver.defaultJavaOptions"].split()
    assert "-XX:G1PeriodicGCInterval=15000" in options
    assert "-XX:-G1PeriodicGCInvokesConcurrent" in options, "the heap of an idle job stays large"

    own = made(spark__driver__defaultJavaOptions="-XX:+UseSerialGC")

    assert own["spark.driver.defaultJavaOptions"] == "-XX:+UseSerialGC"


def test_java_options_of_the_users_own_files_are_left_alone() -> None:
    assert "spark.driver.extraJavaOptions" not in made()
