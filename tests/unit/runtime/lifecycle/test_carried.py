"""Subscriptions that are hidden now and then: an attempt does without as few as it can."""

from __future__ import annotations

from gateway.core.errors import GatewayError, HiddenMarkersError, TransientError
from gateway.runtime.lifecycle.process import Carried
from gateway.runtime.planning.hidden_markers import WhyHidden


def hiding(*names: str) -> GatewayError:
    return HiddenMarkersError("hidden", subscriptions=names)


def test_two_that_are_hidden_in_turns_add_up() -> None:
    carried = Carried()

    carried.note_hidden(hiding("a"))
    carried.note_hidden(hiding("b"))

    assert carried.hidden.keys() == {"a", "b"}


def test_one_that_is_hidden_no_more_is_tried_again() -> None:
    carried = Carried(hidden={"a": WhyHidden("hidden"), "b": WhyHidden("hidden")})

    carried.note_hidden(hiding("b"))  # with both left out, none would be left

    assert carried.hidden.keys() == {"b"}


def test_another_error_says_nothing_of_what_is_hidden() -> None:
    carried = Carried(hidden={"a": WhyHidden("hidden")})

    carried.note_hidden(TransientError("the server is away"))

    assert carried.hidden.keys() == {"a"}
