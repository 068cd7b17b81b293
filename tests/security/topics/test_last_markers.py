"""Last markers of topics, which say whose they are, when somebody hides them."""

from __future__ import annotations

import struct
import uuid
from functools import partial
from pathlib import Path

import pytest

import schemas
from gateway.config import Settings, load_settings
from gateway.core.errors import HiddenMarkersError, TransientError
from gateway.core.records import Writer
from gateway.runtime.planning.ownership import check_owners
from gateway.sink.own_topics.claims import claim, take_over
from gateway.sink.own_topics.owners import ForeignTopics, Owner, read_owners
from gateway.sink.own_topics.requests import send
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from gateway.source.session.connection import ServerFacts
from tests.support.backends.registry_answers import answering_registry
from tests.support.spark.kafka_topics import produce_bomb

pytestmark = pytest.mark.kafka

FACTS = ServerFacts("1", "db", 1, 160004, "UTF8", "logical", False, 1, 1, "-1", "u", True)
MINE, OTHER = (Writer("1", "db", slot, "gw") for slot in ("slot", "other"))


@pytest.fixture
def names(kafka: str) -> list[str]:
    """Two subscriptions with empty marker topics."""
    found = [f"{word}{uuid.uuid4().hex[:8]}" for word in ("hidden", "free")]
    ensure_topics(
        {"bootstrap.servers": kafka}, [TopicSpec(f"{name}.transaction") for name in found]
    )
    return found


def settings_of(folder: Path, kafka: str, registry: str) -> Settings:
    (folder / "pgsluice.toml").write_text(
        '[source]\ndsn = "postgresql://u@h/db"\nslot = "slot"\n'
        '[definitions]\nfile = "replication.sql"\n'
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n'
        f'[registry]\nurl = "{registry}"\n'
    )
    return load_settings(folder / "pgsluice.toml", {})


@pytest.mark.parametrize("status", [404, 410])
def test_a_registry_that_has_no_schema_of_any_marker_does_not_let_a_gateway_go_on(
    kafka: str, registry: str, tmp_path: Path, names: list[str], status: int
) -> None:
    properties = {"bootstrap.servers": kafka}
    taken, free = names
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        take_over(properties, real, OTHER, {taken: Owner(MINE)})
        ids = {
            real.register(f"{name}.transaction-value", schemas.load("transaction"))
            for name in names
        }
    lost = dict.fromkeys(ids, (status, b'{"error_code": 404, "message": "not here"}'))

    with answering_registry(registry, lost) as proxy:
        settings = settings_of(tmp_path, kafka, proxy.url)
        check_owners(settings, FACTS, [free])
        with pytest.raises(ForeignTopics, match='slot "other"'):
            check_owners(settings, FACTS, names)


def test_a_topic_of_which_no_marker_can_be_read_is_held_while_the_registry_lacks_their_schemas(
    kafka: str, registry: str, tmp_path: Path, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    other_version = struct.pack(">bI", 0, 1_999_999) + b"\xff" * 20
    hidden, free = names
    send(properties, [(f"{hidden}.transaction", 0, None, other_version, [])], "forging")
    settings = settings_of(tmp_path, kafka, registry)
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, [free])
        with pytest.raises(HiddenMarkersError, match="takeover") as refused:
            read_owners(properties, real, names)
        with pytest.raises(HiddenMarkersError):
            check_owners(settings, FACTS, names)
        with pytest.raises(TransientError) as again:
            check_owners(settings, FACTS, [hidden])
        by_hand = read_owners(properties, real, names, without_schemas=True)

    assert refused.value.subscriptions == {hidden}
    assert not isinstance(again.value, HiddenMarkersError), "would end the sink"
    assert by_hand == {hidden: Owner(None), free: Owner(MINE)}


def test_a_marker_topic_that_cannot_be_read_after_an_outage_ends_no_other_subscription(
    kafka: str, registry: str, tmp_path: Path, names: list[str]
) -> None:
    properties = {"bootstrap.servers": kafka}
    hidden, free = names
    check = partial(check_owners, settings_of(tmp_path, kafka, registry), FACTS, names)
    with Registry({"url": registry}) as real:
        claim(properties, real, MINE, names)
        check()
        produce_bomb(kafka, f"{hidden}.transaction", 120 << 20, codec="zstd")

        with pytest.raises(HiddenMarkersError, match=f"{hidden}.*cannot be read") as raised:
            check()
        take_over(properties, real, OTHER, {free: Owner(MINE)})
        with pytest.raises(ForeignTopics, match='slot "other"'):
            check()

    assert raised.value.subscriptions == {hidden}
