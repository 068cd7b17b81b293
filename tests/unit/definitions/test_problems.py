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
    shown = problems_text(
        [
            problem("update", "t", "Not in the identity. Enlarge it."),
            problem("delete from", "t", "Not in the identity."),
            problem("update", "u", "Not in the identity. Enlarge it."),
        ]
    )

    assert shown.splitlines()[:2] == ['cannot update table "t"', 'cannot delete from table "t"']
    assert shown.count(f"line 1: {TEXT}") == 2
    assert shown.count("hint: Not in the identity. Enlarge it.") == shown.count("hint:") == 2
    assert shown.splitlines()[5] == 'cannot update table "u"'


def test_another_hint_at_the_same_place_is_told() -> None:
    shown = problems_text([problem("update", "t", "One."), problem("delete from", "t", "Two.")])

    assert "hint: One." in shown and "hint: Two." in shown
