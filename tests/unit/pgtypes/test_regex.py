"""Regular expressions; the values come from the manual and from PostgreSQL 18."""

from __future__ import annotations

import pytest

from gateway.pgtypes import regex_functions, regex_similar
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.regex import Match, Scan, UnsupportedRegexError, compile_regex


@pytest.mark.parametrize(
    ("text", "pattern", "truth"),
    [
        ("abc", "^a", True),
        ("abc", "(b|d)", True),
        ("abc", "^(b|c)", False),
        ("b\na", "^a", False),
        ("b\na", "(?n)^a", True),
        ("a\n", "a$", False),
        ("a\n", "(?w)a$", True),
        ("é", "^.$", True),
        ("x", "[^[:alpha:]]", False),
        ("é", "[[:alpha:]]", False),
        ("foo bar", "\\mbar\\M", True),
        ("foobar", "\\mbar", False),
        ("a1", "(?<=a)[0-9]", True),
        ("b1", "(?<!a)[0-9]", True),
        ("a.c", "***=a.c", True),
        ("abc", "***=a.c", False),
        ("a c", "(?x) a [ ] c # comment", True),
        ("ABC", "(?i)abc", True),
        ("a+", "(?b)a+", True),
        ("Ā", "[à-ÿ]", False),
        ("", "", True),
    ],
)
def test_a_pattern_matches_a_part_of_the_text(text: str, pattern: str, truth: bool) -> None:
    assert compile_regex(pattern).matches(text) is truth


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(", "parentheses () not balanced"),
        ("[a", "brackets [] not balanced"),
        ("a{1", "braces {} not balanced"),
        ("*a", "quantifier operand invalid"),
        ("a{2,1}", "invalid repetition count(s)"),
        ("[z-a]", "invalid character range"),
        ("[[:x:]]", "invalid character class"),
        ("[[.xyz.]]", "invalid collating element"),
        ("\\q", "invalid escape \\ sequence"),
        ("\\1", "invalid backreference number"),
        ("(?z)", "invalid embedded option"),
        ("***?", "invalid regexp (reg version 0.8)"),
    ],
)
def test_an_invalid_pattern_fails_in_the_words_of_the_server(pattern: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        compile_regex(pattern)

    assert caught.value.message == f"invalid regular expression: {message}"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a)\\1",
        "(a){0}\\1",
        "((a?){255}){255}",
        "(" * 100 + ")" * 100,
        "a" * 10_001,
        "((((x{9}){9}){9}){9}){9}",
    ],
    ids=["back reference", "to nothing", "many arcs", "deep", "long", "many states"],
)
def test_what_cannot_be_reproduced_is_not_compiled(pattern: str) -> None:
    with pytest.raises(UnsupportedRegexError):
        compile_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "depends"),
    [
        ("^AB[0-9]+$", False),
        ("[a-zé]", False),
        ("[[:xdigit:]]", False),
        ("\\d", True),
        ("[\\w-]", True),
        ("[[:alpha:]]", True),
        ("\\ma", True),
        ("(?i)a", True),
        ("(?i)[!-~]", True),
        ("(?i)^[0-9]+$", False),
    ],
)
def test_classes_and_case_depend_on_the_collation(pattern: str, depends: bool) -> None:
    assert compile_regex(pattern).uses_ctype is depends


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("XY1234Z", "Y*([0-9]{1,3})", Match(1, 5, {1: (2, 5)})),
        ("XY1234Z", "Y*?([0-9]{1,3})", Match(1, 3, {1: (2, 3)})),
        ("abc0123", "(?:(.*?)(\\d+)(.*)){1,1}", Match(0, 7, {1: (0, 3), 2: (3, 7), 3: (7, 7)})),
        ("abc01234xyz", "(.*)(\\d+)(.*)", Match(0, 11, {1: (0, 7), 2: (7, 8), 3: (8, 11)})),
        ("abc01234xyz", "(.*?)(\\d+)(.*)", Match(0, 4, {1: (0, 3), 2: (3, 4), 3: (4, 4)})),
        ("abcd", "(a|ab)(c|bcd)", Match(0, 4, {1: (0, 1), 2: (1, 4)})),
        ("bb", "(a)?b", Match(0, 1, {})),
    ],
)  # fmt: skip
def test_the_first_quantifier_decides_between_long_and_short(
    text: str, pattern: str, found: Match
) -> None:
    assert Scan(compile_regex(pattern), text).find(0) == found


@pytest.mark.parametrize(
    ("pattern", "text", "first_group"),
    [
        ("(a*){0,2}x", "x", (0, 0)),
        ("(a*?){0,2}?x", "x", None),
        ("(|){0,2}?x", "x", (0, 0)),
        ("(a??)*?x", "x", None),
    ],
)
def test_an_empty_repetition_counts_unless_it_prefers_to_be_short(
    pattern: str, text: str, first_group: tuple[int, int] | None
) -> None:
    found = Scan(compile_regex(pattern), text).find(0)

    assert found is not None
    assert found.span(1) == first_group


def test_a_pattern_that_could_go_back_for_ever_does_not() -> None:
    regex = compile_regex("^(a*)*(a|aa)+(?:a?){30}b$")

    assert not regex.matches("a" * 20_000)


def test_more_characters_and_states_than_are_kept_change_nothing() -> None:
    regex = compile_regex("(?:[a-m].{8}|.[n-z].)*[0-9]{3}$")
    letters = "".join(chr(0x4E00 + number) for number in range(6000))
    mixture = "".join("amz09n"[(number * number + number // 7) % 6] for number in range(6000))

    assert regex.matches_long(letters + "an" * 50 + "123")
    assert regex.matches(mixture + "an" * 50 + "123")
    assert not regex.matches(mixture + letters)


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (regex_functions.replace(b"foobarbaz", b"b..", b"X"), b"fooXbaz"),
        (regex_functions.replace(b"foobarbaz", b"b..", b"X", b"g"), b"fooXX"),
        (regex_functions.replace(b"foobarbaz", b"b(..)", b"X\\1Y", b"g"), b"fooXarYXazY"),
        (
            regex_functions.replace_from(
                b"A PostgreSQL function", b"a|e|i|o|u", b"X", 1, 0, b"i"
            ),
            b"X PXstgrXSQL fXnctXXn",
        ),
        (
            regex_functions.replace_from(
                b"A PostgreSQL function", b"a|e|i|o|u", b"X", 1, 3, b"i"
            ),
            b"A PostgrXSQL function",
        ),
        (regex_functions.match(b"foobarbequebaz", b"(bar)(beque)"), [b"bar", b"beque"]),
        (regex_functions.match(b"foobarbequebaz", b"barbeque"), [b"barbeque"]),
        (regex_functions.match(b"foo", b"bar"), None),
        (regex_functions.substring(b"foobar", b"o.b"), b"oob"),
        (regex_functions.substring(b"foobar", b"o(.)b"), b"o"),
        (regex_functions.count(b"ABCABCAXYaxy", b"A."), 3),
        (regex_functions.count(b"ABCABCAXYaxy", b"A.", 1, b"i"), 4),
        (
            regex_functions.instr(b"ABCDEFGHI", b"(c..)(...)", 1, 1, 0, b"i", 2),
            6,
        ),
        (regex_functions.instr(b"number of your street, town zip, FR", b"[^,]+", 1, 2), 23),
        (regex_functions.substr(b"ABCDEFGHI", b"(c..)(...)", 1, 1, b"i", 2), b"FGH"),
        (regex_functions.split(b"hello world", b"[ ]+"), [b"hello", b"world"]),
        (regex_functions.split(b"ab", b"x*"), [b"a", b"b"]),
    ],
)  # fmt: skip
def test_functions_return_what_the_manual_says(call: object, result: object) -> None:
    assert call == result


@pytest.mark.parametrize(
    ("pattern", "escape", "regex"),
    [
        (b"%(b|d)%", b"\\", b"^(?:.*(?:b|d).*)$"),
        (b"a_c.", b"\\", b"^(?:a.c\\.)$"),
        (b'%#"o_b#"%', b"#", b"^(?:.*){1,1}?(o.b){1,1}(?:.*)$"),
        (b"[]%]%", b"\\", b"^(?:[]%].*)$"),
        (b"a", b"", b"^(?:a)$"),
    ],
)
def test_a_similar_pattern_becomes_a_regular_expression(
    pattern: bytes, escape: bytes, regex: bytes
) -> None:
    assert regex_similar.similar_to_escape(pattern, escape) == regex


@pytest.mark.parametrize(
    ("pattern", "agree"), [(b"[[:alpha:]]%", True), (b"[[:alpha:]%]", False), (b"[]%]", False)]
)
def test_older_releases_end_a_bracket_at_its_first_bracket(pattern: bytes, agree: bool) -> None:
    assert regex_similar.versions_agree(pattern) is agree


@pytest.mark.parametrize(
    "pattern",
    ["^a[^b]*c$", "(?n)^b", "\\mb\\M", "(?i)B|é", "(?!)", "[[:alpha:]]{2,}|x", "a.c|.b.?$",
     "\\U7ffffffe"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", "abc", "axxc", "a\nb", "É b", "zz", "a\nc\n", "xab"])
def test_short_texts_get_the_same_answer_as_long_ones(pattern: str, text: str) -> None:
    regex = compile_regex(pattern)

    assert regex.matches(text) is regex.matches_long(text)
