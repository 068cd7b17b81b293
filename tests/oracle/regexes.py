"""Regular expressions, random and awkward ones, and texts for them."""

from __future__ import annotations

from random import Random
from typing import Final

__all__ = ["AWKWARD", "pattern", "text"]

AWKWARD: Final = (
    # empty things
    "", "()", "(|a)", "a||b", "(?:)*", "(a*)*", "(a*)+b", "(a*?)*?b", "(^)*a", "(a|)+$",
    # quantifiers
    "a{2}", "a{2,}", "a{,2}", "a{2,1}", "a{256}", "a{255}", "a{1,1}?", "a**", "a{1}{2}", "a{",
    "a{x",
    "a{1", "a{1,", "a{1,2", "{1}", "*a", "+", "a|*b", "(*a)", "a{0}", "(a){0}b", "(a)(b){0}c",
    # anchors and newlines
    "^a$", "^$", "$^", "a^b", "a$b", "\\Aa", "a\\Z", "(?n)^b$", "(?w)^b.a", "(?p)^b", "(?n)a.b",
    "(?n)[^x]b", "(?p)a[^b]b", "(?n)\\W", "(?s)a.b", "^*", "(^a)*", "(?n)$\\n^",
    # words
    "\\mab", "ab\\M", "\\yab\\y", "\\Yb", "[[:<:]]a", "a[[:>:]]", "\\m\\M", "\\y\\Y", "\\B", "\\<a",
    # lookaround
    "a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?=a)", "(?!)", "(?<=^|,)a", "(?<!a.*)b", "(?=(a))a",
    "(?=a*)b", "(?<=(?=a)a)b", "(?!a(?!b))a", "(?<=\\ma)b", "(?=", "(?<a)", "(?=a)*",
    # escapes
    "\\", "a\\", "\\q", "\\z", "\\x", "\\x61", "\\x0000000061", "\\u0061", "\\u61", "\\U00000061",
    "\\U7ffffffe", "\\U7fffffff", "\\Uffffffff", "\\0", "\\07", "\\141", "\\400", "\\8", "\\10",
    "(a)\\10", "\\c", "\\cA", "\\cé", "\\e", "\\a", "\\b", "\\.", "\\é", "\\-", "\\_",
    # brackets
    "[]a]", "[^]a]", "[a", "[]", "[^]", "[a-]", "[-a]", "[a-c-e]", "[c-a]", "[a--]", "[--b]",
    "[\\]]", "[\\w-]", "[a-\\w]", "[\\d-z]", "[\\q]", "[\\m]", "[[:alpha:]]", "[[:alpha]",
    "[[:x:]]",
    "[[::]]", "[[.a.]]", "[[.space.]]", "[[.xyz.]]", "[[..]]", "[[=a=]b]", "[[==]]",
    "[[.hyphen.]-z]",
    "[a-[.c.]]", "[[=a=]-c]", "[[:digit:]-z]", "[^\\W]", "[\\W_]", "[\\s\\S]", "[[:ascii:]]", "[[]",
    "[é-ö]", "[^é]", "[\\x61-\\x63]", "[[:word:]]", "[a\\", "[[.a", "[^\\n]", "(?n)[^\\n]",
    # options and directors
    "(?i)ABC", "(?i)[a-c]", "(?i)[^a]", "(?i)É", "(?i)\\u212a", "(?i)[[:upper:]]",
    "(?i)[[:lower:]]",
    "(?c)A", "(?ic)a", "(?x) a b # c", "(?x)a\\ b", "(?x)[a b]", "(?x)a {2}", "(?x)a{ 2}",
    "(?t)a b", "(?q)a.b", "(?q)(a", "(?e)\\d", "(?e)a+?", "(?e)a)", "(?e)(?:a)", "(?b)a\\{1,2\\}",
    "(?b)\\(a\\)", "(?b)^*a", "(?b)*a", "(?b)a+", "(?b)a|b", "(?b)\\<a", "(?b)a$b", "(?b)a^b",
    "(?b)\\(^a\\)", "(?b)\\(a$\\)", "(?b)a\\{1", "(?b)a{1}", "(?b)\\d", "(?z)a", "(?i", "(?i)(?i)a",
    "a(?i)b", "(?#x)a", "a(?#x)*", "(?#", "***:(?i)A", "***=a.b", "***=", "***?a", "***a", "***",
    "(?\uff49)a", "(?š)a", "a{İ", "(?x)aĠb", "(?é)", "(?P<x>a)", "(?-i)a",
    # parentheses
    "(a", "a)", "(a))", "((a)", "(?:a", ")", "(?", "(?a", "((((a))))",
    # greed
    "a*?b", "(a*?)(b*)", "(a|ab)(c|bcd)(d*)", "(a+)(b+?)", "(?:a*?|b+)+", "(a{1,2}?){2}",
    "X(.*?)Y|Z", "(a|b)*", "((a)|b)*", "((a)|(b))*c", "(a?)((ab)?)", "a{0,2}?b{0,2}",
)  # fmt: skip

_CHARACTERS: Final = "abababcAB_ \né12-.xÉ\t]\u0131"
_ATOMS: Final = (
    "a",
    "b",
    "a",
    "b",
    "c",
    "A",
    "_",
    " ",
    "é",
    "1",
    "-",
    ".",
    ".",
    "\\n",
    "\\.",
    "ab",
)
_CLASSES: Final = ("\\d", "\\w", "\\s", "\\D", "\\W", "\\S", "[[:alpha:]]", "[[:digit:]]",
                   "[[:space:]]", "\\x61", "\\u0062", "\\U000000e9", "\\141", "\\e",
                   "\\t")  # fmt: skip
_PARTS: Final = ("a", "b", "c", "a-c", "A-Z", "0-9", "é", "\\d", "\\w", "\\s", "\\W", "\\D",
                 "[:alpha:]", "[:upper:]", "[:lower:]", "[:punct:]", "[.a.]", "[=b=]", "[.space.]",
                 "\\n", "_", "-", "x-z", "[:xdigit:]", "[:word:]", "[:ascii:]", "[:blank:]",
                 "[:cntrl:]", "[:graph:]", "[:print:]", "[:alnum:]")  # fmt: skip
_QUANTIFIERS: Final = ("*", "+", "?", "{2}", "{0,1}", "{1,2}", "{0}", "{1,}", "{2,3}", "{0,2}",
                       "{1}",
                       "{1,1}")  # fmt: skip
_CONSTRAINTS: Final = ("^", "$", "\\A", "\\Z", "\\m", "\\M", "\\y", "\\Y", "[[:<:]]", "[[:>:]]")
_LOOKS: Final = ("(?=", "(?!", "(?<=", "(?<!")
_PREFIXES: Final = (*[""] * 20, "(?i)", "(?n)", "(?p)", "(?w)", "(?x)", "(?in)", "***=", "***:",
                    "(?b)", "(?e)", "(?q)", "(?z)", "(?ei)")  # fmt: skip
_NOISE: Final = (
    "",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "*",
    "\\",
    "|",
    "?",
    "+",
    "^",
    "$",
    "1",
    ",",
    "#",
)


def text(random: Random) -> str:
    """A short text of the characters that the patterns are about."""
    return "".join(random.choices(_CHARACTERS, k=random.choice((0, 1, 2, 3, 4, 5, 6, 8, 12))))


def pattern(random: Random) -> str:
    """A pattern, nearly always a valid one."""
    found = random.choice(_PREFIXES) + _expression(random, random.randint(0, 3))
    if found and random.random() < 0.06:
        at = random.randrange(len(found))
        found = found[:at] + random.choice(_NOISE) + found[at + random.randint(0, 1) :]
    return found


def _expression(random: Random, depth: int) -> str:
    branches = random.choice((1, 1, 1, 1, 2, 2, 3))
    return "|".join(_branch(random, depth) for _ in range(branches))


def _branch(random: Random, depth: int) -> str:
    items = range(random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))
    return "".join(
        _constraint(random, depth) if random.random() < 0.18 else _quantified(random, depth)
        for _ in items
    )


def _constraint(random: Random, depth: int) -> str:
    if depth and random.random() < 0.5:
        return random.choice(_LOOKS) + _expression(random, depth - 1) + ")"
    return random.choice(_CONSTRAINTS)


def _quantified(random: Random, depth: int) -> str:
    found = _atom(random, depth)
    if random.random() < 0.45:
        found += random.choice(_QUANTIFIERS) + ("?" if random.random() < 0.25 else "")
    return found


def _atom(random: Random, depth: int) -> str:
    kind = random.random()
    if depth and kind < 0.3:
        return random.choice(("(", "(", "(?:")) + _expression(random, depth - 1) + ")"
    if kind < 0.5:
        parts = "".join(random.choice(_PARTS) for _ in range(random.randint(1, 3)))
        return f"[{'^' if random.random() < 0.3 else ''}{parts}]"
    return random.choice(_CLASSES if kind < 0.6 else _ATOMS)
