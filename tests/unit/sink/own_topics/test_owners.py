"""Whose topics are, by what their markers say one after the other."""

from __future__ import annotations

import pytest

from gateway.core.lsn import Lsn
from gateway.core.records import Writer
from gateway.sink.own_topics.last_markers import NamedOwners
from gateway.sink.own_topics.owners import ForeignTopics, Owner, owner_of, refuse_foreign

A, B, C = (Writer("1", "shop", slot, "gw") for slot in "abc")
RENAMED = Writer("1", "shop", "a", "another name")


def claim(writer: Writer, taken_from: Writer | None = None) -> NamedOwners:
    return NamedOwners(True, writer, taken_from)


def row(writer: Writer | None) -> NamedOwners:
    return NamedOwners(False, writer)


@pytest.mark.parametrize(
    ("markers", "owner"),
    [
        ([], None),
        ([row(A)], Owner(A)),
        ([claim(A), row(A)], Owner(A)),
        ([claim(A), claim(B)], Owner(A)),
        ([claim(A), claim(B), claim(A)], Owner(A)),
        ([row(A), claim(B)], Owner(A)),
        ([row(A), claim(B, A)], Owner(B, A)),
        ([claim(B, A)], Owner(B, A)),
        ([row(A), claim(B, A), claim(B, A)], Owner(B, A)),
        ([row(A), claim(B, A), row(B)], Owner(B)),
        ([row(A), claim(B, A), row(B), claim(B, A)], Owner(B)),
        ([row(A), claim(B, A), row(A), claim(B, A)], Owner(B, A)),
        ([row(A), claim(B, A), claim(C, A)], Owner(B, A)),
        ([row(A), claim(B, A), claim(A)], Owner(B, A)),
        ([row(A), claim(B, A), row(B), claim(A, B)], Owner(A, B)),
        ([row(A), claim(B, RENAMED)], Owner(B, RENAMED)),
        ([row(None)], Owner(None)),
        ([row(None), claim(A), claim(B)], Owner(A)),
        ([row(A), row(B)], Owner(B)),
    ],
)
def test_the_first_claim_counts_and_a_takeover_names_whom_it_takes_from(
    markers: list[NamedOwners], owner: Owner | None
) -> None:
    assert owner_of(markers) == owner


def test_the_position_of_the_previous_owner_is_that_of_its_last_progress() -> None:
    until = [NamedOwners(False, A, None, Lsn(at), at) for at in (5, 9, 7)]

    owner = owner_of([*until, row(A), claim(B, A)])

    assert owner is not None
    assert (owner.reached, owner.timeline) == (Lsn(7), 7)


def test_who_goes_by_another_name_on_the_same_slot_is_the_same_owner() -> None:
    refuse_foreign(RENAMED, {"s": Owner(A)})


def test_a_refusal_names_both_and_the_way_out() -> None:
    with pytest.raises(ForeignTopics) as refused:
        refuse_foreign(B, {"s": Owner(A)})

    assert str(A) in refused.value.message
    assert str(B) in refused.value.message
    assert "pgsluice takeover s" in str(refused.value.hint)


def test_a_server_in_the_place_of_another_is_told_how_to_take_it() -> None:
    with pytest.raises(ForeignTopics, match="slot drop --system-identifier 1"):
        refuse_foreign(Writer("2", "shop", "a", "gw"), {"s": Owner(A)})


def test_markers_that_do_not_say_who_writes_are_those_of_whoever_has_a_watermark() -> None:
    refuse_foreign(A, {"s": Owner(None)}, known=lambda: True)
    with pytest.raises(ForeignTopics, match="does not say who it is"):
        refuse_foreign(A, {"s": Owner(None)})


def test_a_subscription_moves_to_another_group_when_nobody_reads_the_slot_of_its_own() -> None:
    refuse_foreign(B, {"s": Owner(A)}, siblings=["a"])
    other_server = Writer("2", "shop", "a", "gw")
    with pytest.raises(ForeignTopics):
        refuse_foreign(B, {"s": Owner(other_server)}, siblings=["a"])
