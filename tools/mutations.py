"""One-line mutations of Python code: where a line could be wrong, and how it would read then.

A mutation is a change that a person could make by mistake: another comparison, a condition turned
around, a number off by one, a call or a `raise` that is missing. Texts, annotations, calls that log
and `assert` stay as they are: no test is expected to notice a change of those.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Mutation", "mutated", "mutations"]

_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.FloorDiv: "*",
    ast.Mult: "+",
}
_QUIET: Final = frozenset({"_log", "_LOG", "log", "logger", "warnings", "fail_point"})
"""Names of what writes to the log, or does something in tests alone."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A text that replaces a part of one line.

    Attributes:
        path: The file.
        line: Number of the line, from 1.
        begin: Offset of the part in the line, in bytes of UTF-8.
        end: Offset of its end.
        text: The replacement.
    """

    path: Path
    line: int
    begin: int
    end: int
    text: str


def mutated(source: str, mutation: Mutation) -> str:
    """Return a file's source with the mutation."""
    lines = source.splitlines(keepends=True)
    line = lines[mutation.line - 1].encode()
    text = mutation.text.encode()
    lines[mutation.line - 1] = (line[: mutation.begin] + text + line[mutation.end :]).decode()
    return "".join(lines)


def mutations(path: Path) -> list[Mutation]:
    """Return all mutations of a file, by line."""
    source = path.read_text()
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    found = {Mutation(path, *place) for place in finder.found}
    return sorted(found, key=lambda one: (one.line, one.begin, one.text))


class _Finder(ast.NodeVisitor):
    """Collects (line, begin, end, text)."""

    def __init__(self, source: str) -> None:
        self.found: list[tuple[int, int, int, str]] = []
        self._lines = [line.encode() for line in source.splitlines()]

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for before, operator, after in zip(operands, node.ops, operands[1:], strict=False):
            self._between(before, after, _COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = "or" if isinstance(node.op, ast.And) else "and"
        for before, after in zip(node.values, node.values[1:], strict=False):
            self._between(before, after, other)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        if type(node.op) in _OPERATORS and not any(map(_is_text, sides)):
            self._between(*sides, _OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not) and node.lineno == node.operand.lineno:
            self._add(node.lineno, node.col_offset, node.col_offset + len("not "), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def visit_If(self, node: ast.If) -> None:
        if not _is_type_checking(node.test):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if _is_quiet(node.value):
                return
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        defaults = [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
        for part in (*defaults, *node.body):
            self.visit(part)

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def _negate(self, node: ast.expr) -> None:
        if node.lineno == node.end_lineno and not isinstance(node, ast.Compare | ast.UnaryOp):
            begin, end = node.col_offset, node.end_col_offset or 0
            part = self._lines[node.lineno - 1][begin:end].decode()
            self._add(node.lineno, begin, end, f"not ({part})")

    def _between(self, before: ast.expr, after: ast.expr, operator: str) -> None:
        """Replace what stands between two operands, without the brackets around them."""
        line = before.end_lineno or 0
        if line != after.lineno:
            return
        begin, end = before.end_col_offset or 0, after.col_offset
        part = self._lines[line - 1][begin:end]
        head = len(part) - len(part.lstrip(b") "))
        tail = len(part) - len(part.rstrip(b"( "))
        self._add(line, begin + head, end - tail, operator)

    def _replace(self, node: ast.stmt | ast.expr, text: str) -> None:
        if node.lineno == node.end_lineno:
            self._add(node.lineno, node.col_offset, node.end_col_offset or 0, text)

    def _add(self, line: int, begin: int, end: int, text: str) -> None:
        self.found.append((line, begin, end, text))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_type_checking(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"


def _is_quiet(call: ast.Call) -> bool:
    parts = (call.func, *call.args)
    return any(
        isinstance(at, ast.Name) and at.id in _QUIET for part in parts for at in ast.walk(part)
    )
