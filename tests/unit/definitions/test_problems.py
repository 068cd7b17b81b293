"""Text of several problems in the definitions."""

from __future__ import annotations

from gateway.core.errors import DefinitionError
from gateway.definitions.identity import problems_error, problems_text

TEXT = "CREATE PUBLICATION p FOR TABLE t WHERE (b = 1), u WHERE (b = 1);"


def problem(verb: str, table: str, hint: str) -> DefinitionError:
    return DefinitionError(
        f'cannot {verb} table "{table}"',
        text=TEXT,
        position=TEXT.find(f" {table} ") + 1,
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


def test_a_line_of_the_log_names_the_first_of_many_problems() -> None:
    few = problems_error([problem("update", "t", "One."), problem("delete from", "u", "Two.")])
    many = problems_error([problem("update", f"t{n} {'x' * 5_000}", "One.") for n in range(5_000)])

    assert few.reason == (
        '2 problems in the definitions: cannot update table "t"; cannot delete from table "u"'
    )
    assert few.message.partition("\n")[0] == "2 problems in the definitions:"
    assert 'table "t9 xxx' in many.reason and 'table "t10 ' not in many.reason
    assert many.reason.endswith("; and 4990 more")
    assert len(many.reason) < 5_000
