"""Regular expressions in filters: what they ask of the pattern and of the collation."""

from __future__ import annotations

import pytest

from gateway.errors import FilterError
from gateway.rowfilter import FilterEvaluationError, compile_filter
from tests.unit.rowfilter.columns import COLUMNS, NAMES, row


@pytest.mark.parametrize(
    ("text", "value", "passes"),
    [
        ("(c ~ '^AB[0-9]+$'::text)", b"AB12", True),
        ("(c ~ '^AB[0-9]+$'::text)", b"AB12x", False),
        ("(c !~ '^AB[0-9]+$'::text)", b"AB12x", True),
        ("(c ~ '^AB'::text)", None, False),
        ("((c COLLATE \"C\") ~* '^ab'::text)", b"AB", True),
        ("((c COLLATE \"C\") !~* '\\d'::text)", b"AB", True),
        ("(c ~ ANY (ARRAY['^a'::text, 'b$'::text]))", b"xb", True),
        ("(c !~ ALL (ARRAY['^a'::text, NULL::text]))", b"xb", False),
        ("(c ~ similar_to_escape('(a|b)%'::text))", b"bcd", True),
        ("(c ~ similar_to_escape('a#%'::text, '#'::text))", b"a%", True),
        ("(\"substring\"(c, 'a#\"%#\"c'::text, '#'::text) = 'b'::text)", b"abc", True),
        ("(\"substring\"(c, 'o(.)b'::text) = 'o'::text)", b"foobar", True),
        ("(\"substring\"(c, 'x'::text) IS NULL)", b"foobar", True),
        ("(regexp_replace(c, 'b+'::text, ''::text, 'g'::text) = 'ac'::text)", b"abbcb", True),
        ("(c ~ NULL::text)", b"a", False),
    ],
)
def test_a_filter_with_a_pattern_gives_the_answer_of_the_server(
    text: str, value: bytes | None, passes: bool
) -> None:
    assert compile_filter(text, COLUMNS).bind(NAMES)(row(c=value)) is passes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(c ~ '\\d'::text)", "under collation default cannot be reproduced"),
        ("(c ~* 'a'::text)", "under collation default cannot be reproduced"),
        ("(loose ~ 'a'::text)", "nondeterministic"),
        ("(c ~ t)", "the pattern must be a constant"),
        ("(c ~ '(a)\\1'::text)", "it has a back reference"),
        (
            "(regexp_replace(c, 'a'::text, ''::text, t) = ''::text)",
            "the options must be a constant",
        ),
        ("(c ~ similar_to_escape('[]%]'::text))", "releases of PostgreSQL differ"),
    ],
)
def test_a_pattern_that_cannot_be_reproduced_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason.replace("(", "\\(")):
        compile_filter(text, COLUMNS)


def test_an_invalid_pattern_fails_at_the_first_row_that_reaches_it() -> None:
    passes = compile_filter("((a > 1) AND (c ~ 'a('::text))", COLUMNS).bind(NAMES)

    assert not passes(row(a=b"1", c=b"x"))
    with pytest.raises(FilterEvaluationError, match="parentheses \\(\\) not balanced"):
        passes(row(a=b"2", c=b"x"))
