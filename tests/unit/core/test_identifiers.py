"""Statements that a person is shown, and may run as they are shown."""

from __future__ import annotations

import postgast
import pytest

from gateway.core.display import shown
from gateway.core.identifiers import one_line

STATEMENTS = [
    'GRANT SELECT ON public."a\n; DROP TABLE t; --" TO "r\ts"',
    'GRANT SELECT ON "back\\slash\n" TO r',
    'GRANT SELECT ON "say ""no""\r\n""; DROP TABLE t; --" TO "it\'s\x1b[31m"',
    'GRANT SELECT ON "\'; x\n" TO "\'\n"',
    "CREATE PUBLICATION p FOR TABLE t WHERE (b = 'x\n\\y''\"z' AND c = '\u2028'::text)",
    "CREATE PUBLICATION p FOR TABLE t WHERE (b = E'x\n\\\\\ty' AND \"e\" = 'e\n')",
    'GRANT SELECT ON "plain" TO "Robert\'); --"',
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statement_is_the_same_as_it_is_shown(statement: str) -> None:
    line = one_line(statement)

    assert shown(line) == line
    assert postgast.deparse(postgast.parse(line)) == postgast.deparse(postgast.parse(statement))


def test_statement_without_such_characters_stays() -> None:
    plain = 'GRANT SELECT ON "wäre \\ ""x""" TO "r s"'

    assert one_line(plain) == plain
