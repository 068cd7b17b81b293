"""A Kafka client whose own thread gets no CPU for a while does not end the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from gateway.sink.own_topics.compacted_topic import read_compacted
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from tests.support.backends.rack import Rack
from tests.support.run.stopped_thread import StoppedThread

pytestmark = [pytest.mark.kafka, pytest.mark.java, pytest.mark.slow]

_THREAD = "rdk:main"
"""Name of the thread in which librdkafka keeps the state of a Kafka transaction."""
_PRODUCER = """
import sys
from gateway.sink.delivery.producer import TransactionalProducer

def ask(line):
    print(line, flush=True)
    return sys.stdin.readline() == "give up\\n"

producer = TransactionalProducer(
    {"bootstrap.servers": sys.argv[1]}, "slow", lambda *_: None, lambda: asked() and ask("late?")
)
asked = lambda: False
producer.start()
for number in range(2):
    producer.begin()
    producer.produce([("slow", 0, b"%d" % number, b"", [])])
    producer.flush()
    if number:
        ask("flushed")
        asked = lambda: True
    producer.commit()
    asked = lambda: False
    print("committed", flush=True)
producer.close()
"""


@pytest.fixture
def producer(rack: Rack) -> Iterator[subprocess.Popen[str]]:
    ensure_topics({"bootstrap.servers": rack.broker.bootstrap_servers}, [TopicSpec("slow")])
    address = f"127.0.0.1:{rack.kafka_proxy.port}"
    with subprocess.Popen(
        [sys.executable, "-c", _PRODUCER, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_a_commit_outlasts_a_client_that_has_no_time_for_it(
    rack: Rack, producer: subprocess.Popen[str]
) -> None:
    assert heard(producer) == "committed"
    assert heard(producer) == "flushed"
    rack.kafka_proxy.freeze("to_client")
    say(producer, "go on")
    assert heard(producer) == "late?"  # the commit waits for the broker
    thread = StoppedThread(producer.pid, _THREAD)
    rack.kafka_proxy.thaw()
    say(producer, "go on")
    assert heard(producer) == "late?"  # and now for its own client, too
    thread.release()
    say(producer, "go on")
    while (line := heard(producer)) == "late?":
        say(producer, "go on")

    assert line == "committed"
    assert producer.wait(60) == 0
    kafka = {"bootstrap.servers": rack.broker.bootstrap_servers}
    assert [key for key, _ in read_compacted(kafka, "slow", 60)] == [b"0", b"1"]


def heard(process: subprocess.Popen[str]) -> str:
    return _stream(process.stdout).readline().strip()


def say(process: subprocess.Popen[str], answer: str) -> None:
    stream = _stream(process.stdin)
    stream.write(f"{answer}\n")
    stream.flush()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
