"""What a table reads when it begins with a copy, where others have written to its topic."""

from __future__ import annotations

from spark_consumer.kafka.markers import Marker, Range
from spark_consumer.kafka.position import Gap, Share, Span, TopicState, beginning, share

TOPIC = "s.public.t"


def test_a_copy_begins_at_its_first_record_whatever_stands_before_it() -> None:
    # Three records of somebody else at 100 to 102, behind what the gateway wrote last.
    marker = Marker(7, 4711, None, {TOPIC: (Range(0, 103, 108, 100, 5),)})
    state = TopicState("id", {0: 0}, {0: 109})

    begun = beginning(TOPIC, "markers", state, [marker])

    assert begun is not None
    assert begun.spans == (Span(0, 103, 108, 5),)
    assert begun.position.next == {0: 108}


def test_a_table_that_goes_on_reads_from_where_it_ended_so_that_others_records_show() -> None:
    marker = Marker(7, 4711, None, {TOPIC: (Range(0, 103, 108, 100, 5),)})
    state = TopicState("id", {0: 0}, {0: 109})
    before = share(
        TOPIC, "markers", state, [Marker(6, 1, None, {TOPIC: (Range(0, 0, 100, 0, 100),)})], None
    )
    assert isinstance(before, Share)

    found = share(TOPIC, "markers", state, [marker], before.position)

    assert isinstance(found, Share)
    assert found.spans == (Span(0, 100, 108, 5),)


def test_a_new_owners_first_range_does_not_pass_for_the_next_one() -> None:
    """It begins where the topic ended, not at 0: so its copy is found at once."""
    marker = Marker(7, 4711, None, {TOPIC: (Range(0, 103, 108, 103, 5),)})
    state = TopicState("id", {0: 0}, {0: 109})

    assert isinstance(share(TOPIC, "markers", state, [marker], None), Gap)
    begun = beginning(TOPIC, "markers", state, [marker])
    assert begun is not None and begun.spans == (Span(0, 103, 108, 5),)
