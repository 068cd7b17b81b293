"""Random regular expressions on random texts: the server and the gateway must say the same.

PGSLUICE_ORACLE_SEED repeats a run; PGSLUICE_ORACLE_PAIRS (default 5000) sets its size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final

import pytest

from gateway.pgtypes import regex_functions, regex_similar
from gateway.pgtypes.arrays import one_dimension, parse_array
from gateway.pgtypes.regex import UnsupportedRegexError, compile_regex
from tests.oracle.attempts import Attempt, Connection, Failure, attempts, outcome
from tests.oracle.majors import MAJORS
from tests.oracle.regexes import AWKWARD, pattern, text
from tests.servers import Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

TEXTS: Final = ("", "a", "ab", "aab", "abc", "b\na", "a\nb\n", "xay aba", "ABC é", "a.b", "abcd",
                "1_2",
                "ÉaK\u017f", "a]b", "]-", "a b", "Ġİ", "cabab,a", "XabYcYZ")  # fmt: skip
_EACH: Final = 8

Ours = Callable[..., object]


def _match(options: str) -> Ours:
    def match(subject: bytes, pattern: bytes) -> object:
        regex = compile_regex(pattern.decode(), options)
        answers = regex.matches(subject.decode()), regex.matches_long(subject.decode())
        return answers[0] if answers[0] is answers[1] else str(answers).encode()

    return match


MATCHES: Final[Mapping[str, Ours]] = MappingProxyType(
    {'a1 COLLATE "C" ~ a2': _match(""), 'a1 COLLATE "C" ~* a2': _match("i")}
)
_TEXT: Final = 'a1 COLLATE "C"'
FUNCTIONS: Final[Mapping[str, Ours]] = MappingProxyType(
    {
        f"regexp_match({_TEXT}, a2)": lambda t, p: (
            None if (found := regex_functions.match(t, p)) is None else one_dimension(found)
        ),
        f"substring({_TEXT} FROM a2)": regex_functions.substring,
        f"regexp_replace({_TEXT}, a2, '<\\1|\\&|\\\\|\\2\\q>', 'g')": lambda t, p: (
            regex_functions.replace(t, p, b"<\\1|\\&|\\\\|\\2\\q>", b"g")
        ),
        f"regexp_replace({_TEXT}, a2, '[&]', 2, 2, 'i')": lambda t, p: regex_functions.replace_from(
            t, p, b"[&]", 2, 2, b"i"
        ),
        f"regexp_split_to_array({_TEXT}, a2)": lambda t, p: one_dimension(
            regex_functions.split(t, p)
        ),
        f"regexp_count({_TEXT}, a2, 2, 'n')": lambda t, p: regex_functions.count(t, p, 2, b"n"),
        f"regexp_instr({_TEXT}, a2, 2, 2, 1)": lambda t, p: regex_functions.instr(t, p, 2, 2, 1),
        f"regexp_instr({_TEXT}, a2, 1, 1, 0, '', 2)": lambda t, p: regex_functions.instr(
            t, p, 1, 1, 0, b"", 2
        ),
        f"regexp_substr({_TEXT}, a2, 1, 2, 'i', 1)": lambda t, p: regex_functions.substr(
            t, p, 1, 2, b"i", 1
        ),
        f"regexp_like({_TEXT}, a2, 'w')": lambda t, p: regex_functions.like(t, p, b"w"),
    }
)


@pytest.fixture
def server(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


def _agree(attempt: Attempt, ours: object) -> bool:
    if isinstance(ours, Failure):
        return attempt.error == ours.message
    if attempt.error is not None:
        return False
    if isinstance(ours, bool | int):
        return str(ours).lower().encode() == attempt.result
    if isinstance(ours, bytes) or ours is None:
        return ours == attempt.result
    return attempt.result is not None and ours == parse_array(attempt.result, bytes)


def _compare(
    server: Connection, expression: str, ours: Ours, pairs: Sequence[tuple[str, str]]
) -> Iterator[str]:
    for attempt in attempts(server, expression, ["text", "text"], pairs):
        try:
            found = outcome(ours, attempt.arguments)
        except UnsupportedRegexError:
            continue
        if not _agree(attempt, found):
            yield f"{expression}: {found!r}, the server {attempt}"


def _random_pairs(count: int) -> list[tuple[str, str]]:
    seed = int(os.environ.get("PGSLUICE_ORACLE_SEED") or Random().randrange(2**32))
    print(f"PGSLUICE_ORACLE_SEED={seed}")
    random = Random(seed)
    patterns = [pattern(random) for _ in range(count // _EACH)]
    return [(text(random), p) for p in patterns for _ in range(_EACH)]


def _pairs() -> int:
    return int(os.environ.get("PGSLUICE_ORACLE_PAIRS") or 5000)


@pytest.mark.parametrize("expression", MATCHES)
def test_random_patterns_match_as_on_the_server(server: Connection, expression: str) -> None:
    pairs = _random_pairs(_pairs())

    found = list(_compare(server, expression, MATCHES[expression], pairs))

    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize("expression", FUNCTIONS)
def test_random_patterns_find_what_the_server_finds(server: Connection, expression: str) -> None:
    pairs = _random_pairs(_pairs() // len(FUNCTIONS))

    found = list(_compare(server, expression, FUNCTIONS[expression], pairs))

    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize("expression", [*MATCHES, *list(FUNCTIONS)[:3]])
def test_awkward_patterns_are_read_as_on_the_server(server: Connection, expression: str) -> None:
    pairs = [(t, p) for p in AWKWARD for t in TEXTS]

    ours = {**MATCHES, **FUNCTIONS}[expression]
    found = list(_compare(server, expression, ours, pairs))

    assert not found, "\n".join(found[:10])


OPTIONS: Final = ("", "i", "g", "n", "x", "q", "qx", "nq", "qi", "e", "b", "bq", "z", "1", "gi",
                  "ce", "é",
                  "ge", "qe", "mw", "ps")  # fmt: skip


@pytest.mark.parametrize("name", ["regexp_like", "regexp_match", "regexp_replace"])
def test_options_are_read_as_on_the_server(server: Connection, name: str) -> None:
    ours: Ours
    match name:
        case "regexp_like":
            expression, ours = f"regexp_like({_TEXT}, 'a+ B', a2)", regex_functions.like
        case "regexp_match":
            expression, ours = f"regexp_match({_TEXT}, 'a+ B', a2)", regex_functions.match
        case _:
            expression = f"regexp_replace({_TEXT}, 'a+ B', '<\\&>', a2)"

            def ours(t: bytes, p: bytes, o: bytes) -> bytes:
                return regex_functions.replace(t, p, b"<\\&>", o)

    pairs = [(t, o) for t in ("aab", "aa b", "a+ b", "A+ B", "aaB aa B") for o in OPTIONS]

    found = []
    for attempt in attempts(server, expression, ["text", "text"], pairs):
        subject, options = attempt.arguments
        got = outcome(ours, [subject, b"a+ B", options])
        if isinstance(got, Failure) and attempt.error is not None:
            agree = attempt.error.startswith(got.message)
        else:
            agree = _agree(attempt, one_dimension(got) if isinstance(got, list) else got)
        if not agree:
            found.append(f"{got!r}, the server {attempt}")

    assert not found, "\n".join(found[:10])


SIMILAR: Final = ("", "%", "_", "a%", "a|b", "(a|b)c", "a.b", "a^$", "a\\%", "a\\", "[a-c]%",
                  "[]a]%",
                  "[^]a]_", "[[:alpha:]]%", "[[:alpha:]%]", "[a\\]b]%", "a#%", "##", "x#\"%#\"y",
                  "#\"a#\"", "#\"a", "a#\"b#\"c#\"d", "é%", "aéb", "éé", "[é]", "a{2}", "a+b?",
                  "[a^b]", "[^^]", "[\\d]", "\\d", "\\éa", "[#]]", "#[a%]")  # fmt: skip


def test_similar_patterns_become_what_the_server_makes_of_them(server: Connection) -> None:
    pairs = [(p, e) for p in SIMILAR for e in ("\\", "#", "", "é", "ab", "%")]

    found = [
        f"{got!r}, the server {attempt}"
        for attempt in attempts(server, "similar_to_escape(a1, a2)", ["text", "text"], pairs)
        if not _agree(attempt, got := outcome(regex_similar.similar_to_escape, attempt.arguments))
    ]

    assert not found, "\n".join(found)
