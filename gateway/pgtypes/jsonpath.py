"""jsonpath: the path as its output function prints it -> a tree of steps.

The text comes from the server, so it is in the one form that it prints: keys in quotes, numbers
without exponents, brackets only where its printJsonPathItem() sets them. It leaves some out that
matter: an arithmetic expression that is itself an operand is printed without, also when something
follows it, so that ``1 + ($.a * $).b`` and ``1 + $.a * $.b`` look the same. Such a path is not
supported; neither is what this module cannot evaluate exactly.

Source: src/backend/utils/adt/jsonpath.c, jsonpath_gram.y.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonpath_values import CONVERSIONS
from gateway.pgtypes.regex import Regex, UnsupportedRegexError, compile_regex

__all__ = ["ANY_LEVEL", "ARITHMETIC", "COMPARISONS", "METHODS", "JsonPath", "Step", "read_jsonpath"]

ANY_LEVEL: Final = 2**32 - 1
"""The level ``last`` of ``.**{...}``."""
ARITHMETIC: Final = frozenset("+-*/%")
COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
PREDICATES: Final = COMPARISONS | {"&&", "||", "!", "unknown", "exists", "starts", "regex"}
METHODS: Final = CONVERSIONS.keys() | {"type", "size", "abs", "floor", "ceiling", "keyvalue"}

_TOKEN = re.compile(
    r'[ ]*(?:(?P<string>")|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<word>[a-z_]+)'
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|\*\*|[-+*/%<>!?@$.,(){}\[\]]))"
)
_LEVELS: Final = (("||",), ("&&",), tuple(COMPARISONS), ("+", "-"), ("*", "/", "%"))
"""Binary operators by priority."""
_COMPARISON_LEVEL: Final = 2
_ARITHMETIC_STEPS: Final = ARITHMETIC | {"negative", "positive"}
_LITERALS: Final = {"null": None, "true": True, "false": False}
_REGEX_OPTIONS: Final = {"": "p", "s": "s", "m": "n", "ms": "w"}
"""Flags of like_regex -> options of a regular expression: a point stops at a newline unless s."""
_MAX_DEPTH: Final = 25
"""Brackets within brackets."""


@dataclass(frozen=True, slots=True)
class Step:
    """One item of a path.

    Attributes:
        kind: An operator as it is written; ``negative`` and ``positive`` for the unary ones;
            otherwise literal, variable, root, current, last, key, any_key, any_array, index,
            any, filter, starts, regex, unknown, exists, or the name of a method.
        value: Of a literal, a key or a variable; the levels of ``.**``; the compiled regex.
        arguments: Operands; for an index pairs of subscripts, None where there is no ``to``.
        next: What is applied to each result.
        bracketed: It is printed in brackets.
    """

    kind: str
    value: Any = None
    arguments: tuple[Any, ...] = ()
    next: Step | None = None
    bracketed: bool = False


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, or why it is not supported.

    Attributes:
        messages_vary: Where errors are not suppressed, the path can raise one whose text quotes a
            value, or is not the same in all releases of PostgreSQL.
    """

    root: Step | None
    strict: bool = False
    messages_vary: bool = False
    unsupported: str = ""


class _Unsupported(Exception):
    """The path cannot be evaluated exactly; the message says why."""


def read_jsonpath(text: bytes) -> JsonPath:
    """Read a path as its output function prints it; it never fails, see `JsonPath.unsupported`."""
    source = text.decode()
    strict = source.startswith("strict ")
    parser = _Parser(source[7:] if strict else source)
    try:
        return JsonPath(parser.path(), strict, parser.messages_vary)
    except _Unsupported as error:
        return JsonPath(None, strict, unsupported=str(error))


_UNREADABLE: Final = "the path is not in a form that PostgreSQL prints"
_AMBIGUOUS: Final = (
    "PostgreSQL prints the path without brackets that matter: what follows an arithmetic "
    "expression could belong to its last operand"
)


class _Parser:
    """Recursive descent over the tokens of one path."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.kind, self.token = "", ""
        self.messages_vary = False
        self.advance()

    # Tokens

    def advance(self) -> None:
        """Go to the next token; its kind is empty at the end."""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            if self.text[self.at :].strip(" "):
                raise _Unsupported(_UNREADABLE)
            self.kind = self.token = ""
            return
        self.kind = match.lastgroup or ""
        self.token, self.at = match[self.kind], match.end()
        if self.kind == "string":
            try:
                self.token, self.at = scanstring(self.text, self.at)
            except ValueError:
                raise _Unsupported(_UNREADABLE) from None

    def take(self, token: str) -> bool:
        """Go past `token` if it stands here."""
        if self.kind in ("", "string") or self.token != token:
            return False
        self.advance()
        return True

    def expect(self, *tokens: str) -> None:
        """Go past `tokens`, which have to stand here."""
        for token in tokens:
            if not self.take(token):
                raise _Unsupported(_UNREADABLE)

    def expect_kind(self, kind: str) -> str:
        """Go past a token of `kind`; returns it."""
        token = self.token
        if self.kind != kind:
            raise _Unsupported(_UNREADABLE)
        self.advance()
        return token

    # Expressions

    def path(self) -> Step:
        """All of the text."""
        found = self.settled(self.expression(0))
        if self.kind:
            raise _Unsupported(_UNREADABLE)
        return found

    def expression(self, level: int) -> Step:
        """Operators from `level` of _LEVELS on."""
        if level == len(_LEVELS):
            return self.unary()
        left = self.expression(level + 1)
        while self.kind == "sign" and self.token in _LEVELS[level]:
            kind = self.token
            self.advance()
            right = self.expression(level + 1)
            is_logical = kind in ("&&", "||")
            if is_logical is not _is_predicate(left) or is_logical is not _is_predicate(right):
                raise _Unsupported(_UNREADABLE)
            left = Step(kind, None, (self.settled(left), self.settled(right)))
        if level == _COMPARISON_LEVEL and self.kind == "word":
            return self.match(left)
        return left

    def operand(self) -> Step:
        """An expression that is no predicate, printed without brackets of its own."""
        step = self.settled(self.expression(_COMPARISON_LEVEL + 1))
        if _is_predicate(step):
            raise _Unsupported(_UNREADABLE)
        return step

    def settled(self, step: Step) -> Step:
        """`step`, of which it must be clear how far it reaches."""
        last = step
        while last.kind in _ARITHMETIC_STEPS and not last.bracketed:
            last = last.arguments[-1]
        if last is not step and last.next is not None:
            raise _Unsupported(_AMBIGUOUS)
        return step

    def unary(self) -> Step:
        """A sign before an operand; that of a number belongs to it."""
        for sign, kind in (("-", "negative"), ("+", "positive")):
            if self.kind == "sign" and self.take(sign):
                step = self.settled(self.unary())
                if step.kind == "literal" and step.next is None:
                    if not isinstance(step.value, Decimal):
                        raise _Unsupported(_UNREADABLE)
                    turned = sign == "-" and step.value
                    return replace(step, value=step.value.copy_negate()) if turned else step
                return Step(kind, None, (step,))
        return self.primary()

    def primary(self) -> Step:
        """What accessors can follow."""
        kind, token = self.kind, self.token
        if kind == "string":
            self.advance()
            return self.accessors(Step("literal", token))
        if kind == "number":
            self.advance()
            return self.accessors(Step("literal", Decimal(token)))
        if kind == "word":
            return self.word()
        if self.take("("):
            return self.brackets()
        if self.take("!"):
            self.expect("(")
            return Step("!", None, (self.predicate(),))
        if self.take("@"):
            return self.accessors(Step("current"))
        self.expect("$")
        if self.kind == "string":
            return self.accessors(Step("variable", self.expect_kind("string")))
        return self.accessors(Step("root"))

    def word(self) -> Step:
        """A keyword that begins an operand."""
        word = self.expect_kind("word")
        if word in _LITERALS:
            return self.accessors(Step("literal", _LITERALS[word]))
        if word == "last":
            return self.accessors(Step("last"))
        if word != "exists":
            raise _Unsupported(_UNREADABLE)
        self.expect("(")
        step = self.operand()
        self.expect(")")
        return Step("exists", None, (step,))

    def enter(self) -> None:
        """Count a bracket that opens."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _Unsupported("it is nested too deeply")

    def brackets(self) -> Step:
        """What stands between brackets, the first of which has been taken."""
        self.enter()
        step = self.expression(0)
        self.expect(")")
        self.depth -= 1
        if _is_predicate(step) and self.take("is"):
            self.expect("unknown")
            return Step("unknown", None, (step,))
        # What is applied to a path in brackets goes on with the path.
        if step.next is not None:
            raise _Unsupported(_UNREADABLE)
        return self.accessors(replace(step, bracketed=True))

    def predicate(self) -> Step:
        """A predicate up to the closing bracket; the opening one has been taken."""
        self.enter()
        step = self.expression(0)
        self.expect(")")
        self.depth -= 1
        if not _is_predicate(step):
            raise _Unsupported(_UNREADABLE)
        return step

    def match(self, left: Step) -> Step:
        """``starts with`` and ``like_regex`` after their left operand."""
        if self.token not in ("starts", "like_regex"):
            return left
        if _is_predicate(left):
            raise _Unsupported(_UNREADABLE)
        left = self.settled(left)
        if self.take("like_regex"):
            pattern = self.expect_kind("string")
            flags = self.expect_kind("string") if self.take("flag") else ""
            return Step("regex", _regex(pattern, flags), (left,))
        self.expect("starts", "with")
        kind = "variable" if self.take("$") else "literal"
        return Step("starts", None, (left, Step(kind, self.expect_kind("string"))))

    # Accessors

    def accessors(self, step: Step) -> Step:
        """`step` with all that follows it applied."""
        chain = [step]
        while self.kind == "sign":
            if self.take("."):
                chain.append(self.member())
            elif self.take("["):
                chain.append(self.subscripts())
            elif self.take("?"):
                self.expect("(")
                chain.append(Step("filter", None, (self.predicate(),)))
            else:
                break
        found: Step | None = None
        for number in reversed(range(len(chain))):
            if chain[number].kind == "keyvalue" and not _is_part_of_pair(found):
                raise _Unsupported("the id that .keyvalue() gives depends on how values are stored")
            found = replace(chain[number], next=found)
        assert found is not None
        return found

    def member(self) -> Step:
        """What follows a point."""
        if self.kind == "string":
            return Step("key", self.expect_kind("string"))
        if self.take("*"):
            return Step("any_key")
        if self.take("**"):
            return Step("any", self.levels())
        name = self.expect_kind("word")
        if name not in METHODS:
            raise _Unsupported(f"the method .{name}() is not supported")
        self.expect("(")
        if not self.take(")"):
            raise _Unsupported(f"the method .{name}() with arguments is not supported")
        self.messages_vary |= name in CONVERSIONS
        return Step(name)

    def levels(self) -> tuple[int, int]:
        """The first and the last level of ``.**``."""
        if not self.take("{"):
            return 0, ANY_LEVEL
        first = self.level()
        last = self.level() if self.take("to") else first
        self.expect("}")
        return first, last

    def level(self) -> int:
        """A level, or ``last``."""
        return ANY_LEVEL if self.take("last") else int(self.expect_kind("number"))

    def subscripts(self) -> Step:
        """The list of subscripts, after its opening bracket."""
        if self.take("*"):
            self.expect("]")
            return Step("any_array")
        pairs: list[tuple[Step, Step | None]] = []
        self.enter()
        while not pairs or self.take(","):
            low = self.operand()
            pairs.append((low, self.operand() if self.take("to") else None))
        self.expect("]")
        self.depth -= 1
        return Step("index", None, tuple(pairs))


def _is_predicate(step: Step) -> bool:
    return step.kind in PREDICATES and step.next is None


def _is_part_of_pair(step: Step | None) -> bool:
    return step is not None and step.kind == "key" and step.value in ("key", "value")


def _regex(pattern: str, flags: str) -> Regex:
    """The regular expression of like_regex, where the default collation does not matter to it.

    Source: jspConvertRegexFlags().
    """
    if "x" in flags:
        raise _Unsupported(_UNREADABLE)
    options = "q" if "q" in flags else _REGEX_OPTIONS["".join(sorted(set(flags) & {"m", "s"}))]
    try:
        found = compile_regex(pattern, options + "i" * ("i" in flags))
    except (UnsupportedRegexError, EvaluationError) as error:
        raise _Unsupported(f"its regular expression cannot be reproduced, {error}") from None
    if found.uses_ctype:
        raise _Unsupported("its regular expression depends on the collation of the database")
    return found
