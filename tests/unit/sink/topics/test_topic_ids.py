"""Permission to read and to write topics."""

from __future__ import annotations

from gateway.core.errors import AccessError
from gateway.sink.topics.topic_ids import KnownTopic, read_denied, write_denied


def test_a_topic_that_may_not_be_used_is_a_right_that_the_user_lacks() -> None:
    topics = {
        "both": KnownTopic("a", may_read=True, may_write=True),
        "unread": KnownTopic("b", may_read=False, may_write=True),
        "unwritten": KnownTopic("c", may_read=True, may_write=False),
    }

    errors = {**read_denied(topics), **write_denied(topics)}

    assert {name: type(error) for name, error in errors.items()} == {
        "unread": AccessError,
        "unwritten": AccessError,
    }
