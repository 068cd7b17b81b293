"""Text of several problems in the definitions."""

from __future__ import annotations

from gateway.core.errors import DefinitionError
from gateway.definitions.identity import problems_text

TEXT = "CREATE PUBLICATION p FOR TABLE t WHERE (b = 1), u WHERE (b = 1);"


def problem(verb: str, table: str, hint: str) -> DefinitionError:
    return DefinitionError(
        f'cannot {verb} table "{table}"',
        text=TEXT,
        position=TEXT.index(f" {table} ") + 1,
        hint=hint,
    )


def test_an_update_and_a_delete_at_one_place_share_quotation_and_hint() -> None:
    told = problems_text(
        [
            problem("update", "t", "Not in the identity. Enlarge it."),
            problem("delete from", "t", "Not in the identity."),
            problem("update", "u", "Not in the identity. Enlarge it."),
        ]
    )

    assert told.splitlines()[:2] == ['cannot update table "t"', 'cannot delete from table "t"']
    assert told.count(f"line 1: {TEXT}") == 2
    assert told.count("hint: Not in the identity. Enlarge it.") == told.count("hint:") == 2
    assert told.splitlines()[5] == 'cannot update table "u"'


def test_another_hint_at_the_same_place_is_told() -> None:
    told = problems_text([problem("update", "t", "One."), problem("delete from", "t", "Two.")])

    assert "hint: One." in told and "hint: Two." in told
