"""Permission to write to topics."""

from __future__ import annotations

from gateway.core.errors import AccessError
from gateway.sink.topics.topic_ids import KnownTopic, unwritable


def test_a_topic_that_may_not_be_written_is_a_right_that_the_user_lacks() -> None:
    found = unwritable({"may": KnownTopic("a", True), "may_not": KnownTopic("b", False)})

    assert list(found) == ["may_not"]
    assert type(found["may_not"]) is AccessError
