"""Tree of a regular expression -> automata that run over a text in time linear in its length.

A pattern without back references is a regular language, so a nondeterministic automaton decides
it; its sets of states are made deterministic while texts are read, and kept. Constraints (anchors,
lookaround) are conditions on a position: what holds where is found before, in one pass for each
constraint, innermost first. An arc with a condition may be followed only where it holds.

    position   0   1   2   3         contexts[p]: bit i is set where condition i holds;
    text       | a | b | c |         condition 0 is the start of the text, 1 is its end

Nothing here backtracks, so no pattern can make a text take more than linear time per condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from gateway.pgtypes.regex_palette import Palette
from gateway.pgtypes.regex_parser import UnsupportedRegexError
from gateway.pgtypes.regex_syntax import (
    Backref,
    Chars,
    Choice,
    Edge,
    Group,
    Look,
    Node,
    Repeat,
    Sequence,
)

__all__ = ["Automaton", "Conditions", "State", "Subject"]

START: Final = 1
END: Final = 2

_MAX_STATES: Final = 20_000
_MAX_ARCS: Final = 300_000
"""Well below what makes PostgreSQL give up (REG_MAX_COMPILE_SPACE)."""
_MAX_CONDITIONS: Final = 1_000
_MAX_REPEATED_CONDITIONS: Final = 8
"""PostgreSQL moves constraints to where they are decided, which can take it beyond any bound."""
_MAX_CACHED_STEPS: Final = 20_000
"""How many steps an automaton remembers, some 100 bytes each, before it starts anew."""


class State(dict[object, "State"]):
    """A set of automaton states, before the arcs without a character are followed.

    As a mapping: a character, or (character, context) -> the next state; what is not known yet is
    computed. `context` is the one that plain characters stand for.
    """

    __slots__ = ("_automaton", "_closures", "_next", "context", "raw")

    def __init__(self, automaton: Automaton, raw: frozenset[int], context: int) -> None:
        super().__init__()
        self._automaton, self.raw, self.context = automaton, raw, context
        self._closures: dict[int, frozenset[int]] = {}
        self._next: dict[tuple[int, int], State] = {}

    def closure(self, context: int) -> frozenset[int]:
        """All automaton states that the set stands for where `context` holds."""
        found = self._closures.get(context)
        if found is None:
            found = self._closures[context] = self._automaton.closure(self.raw, context)
        return found

    def accepts(self, context: int) -> bool:
        """A match may end here."""
        return self._automaton.accept in self.closure(context)

    def __missing__(self, key: str | tuple[str, int]) -> State:
        character, context = key if isinstance(key, tuple) else (key, self.context)
        color = self._automaton.palette[character]
        found = self._next.get((color, context))
        if found is None:
            found = self._automaton.step(self.closure(context), color)
        self._automaton.count()
        self._next[color, context] = self[key] = found
        return found

    def forget(self) -> None:
        """Drop what has been computed."""
        self.clear()
        self._next.clear()
        self._closures.clear()


@dataclass(frozen=True, slots=True)
class Subject:
    """A text, and which conditions hold at each position of it."""

    text: str
    contexts: list[int]


class Automaton:
    """The language of one node.

    Attributes:
        failed: The state from which nothing can match any more.
        matched: With `floating` and `stopping`, the state after a match has been found.
    """

    def __init__(self, node: Node, conditions: Conditions, palette: Palette) -> None:
        self.palette = palette
        self._conditions = conditions
        self._free: list[list[tuple[int, int]]] = []
        self._moves: list[list[tuple[frozenset[int], int]]] = []
        self._loops = self._repeated_conditions = 0
        self.start, self.accept = self._new(), self._new()
        self._build(node, self.start, self.accept)
        self._floating = self._stopping = False
        self.failed = State(self, frozenset(), 0)
        self.matched = State(self, frozenset(), 0)
        self._reset()

    # Construction

    def _new(self) -> int:
        if len(self._free) >= _MAX_STATES:
            raise UnsupportedRegexError("it is too large")
        self._free.append([])
        self._moves.append([])
        return len(self._free) - 1

    def _build(self, node: Node, start: int, end: int) -> None:
        match node:
            case Chars():
                self._moves[start].append((self.palette.frozen[node], end))
            case Edge() | Look():
                self._free[start].append((self._conditions.number(node), end))
                self._repeated_conditions += self._loops > 0
            case Group(body):
                self._build(body, start, end)
            case Sequence(items):
                self._chain(items, start, end)
            case Choice(branches):
                for branch in branches:
                    first, last = self._new(), self._new()
                    self._free[start].append((-1, first))
                    self._free[last].append((-1, end))
                    self._build(branch, first, last)
            case Repeat(body, low, high):
                several = high is None or high > 1
                self._loops += several
                self._repeat(body, low, high, start, end)
                self._loops -= several
            case Backref():
                raise UnsupportedRegexError("it has a back reference")
            case _:
                assert_never(node)

    def _chain(self, items: Iterable[Node], start: int, end: int) -> None:
        at = start
        for item in items:
            after = self._new()
            self._build(item, at, after)
            at = after
        self._free[at].append((-1, end))

    def _repeat(self, body: Node, low: int, high: int | None, start: int, end: int) -> None:
        at = self._new()
        self._free[start].append((-1, at))
        for _ in range(low):
            after = self._new()
            self._build(body, at, after)
            at = after
        if high is None:
            first, last = self._new(), self._new()
            self._free[at].append((-1, first))
            self._build(body, first, last)
            self._free[last].append((-1, at))
        else:
            for _ in range(high - low):
                after = self._new()
                self._free[at].append((-1, end))
                self._build(body, at, after)
                at = after
        self._free[at].append((-1, end))

    def floating(self, *, stopping: bool) -> Automaton:
        """This automaton, changed to start anew at every position; `stopping` at the first match.

        Only a stopping one may be asked to `search`.
        """
        self._floating, self._stopping = True, stopping
        self._reset()
        return self

    def reverse(self) -> Automaton:
        """This automaton, changed to read texts from their end."""
        free, moves = self._free, self._moves
        self._free = [[] for _ in free]
        self._moves = [[] for _ in moves]
        for state, arcs in enumerate(free):
            for condition, target in arcs:
                self._free[target].append((condition, state))
        for state, steps in enumerate(moves):
            for colors, target in steps:
                self._moves[target].append((colors, state))
        self.start, self.accept = self.accept, self.start
        self._reset()
        return self

    def check_size(self) -> None:
        """Raise `UnsupportedRegexError` where PostgreSQL might find the pattern too complex."""
        arcs = 0
        for steps in self._moves:
            for colors, target in steps:
                arcs += len(colors)
                for state in self.closure(frozenset((target,)), -1):
                    arcs += sum(len(colors) for colors, _ in self._moves[state])
                if arcs > _MAX_ARCS:
                    raise UnsupportedRegexError("it is too large")
        conditions = sum(c >= 0 for free in self._free for c, _ in free)
        if conditions > _MAX_CONDITIONS or self._repeated_conditions > _MAX_REPEATED_CONDITIONS:
            raise UnsupportedRegexError("it has too many constraints")

    # Running

    def _reset(self) -> None:
        self._states: dict[frozenset[int], State] = {}
        self._steps = 0
        raw = frozenset((self.start,))
        self.origin = State(self, raw, START)
        self._only_at_start = self._stopping and not self._moving(self.closure(raw, 0))

    def count(self) -> None:
        """Take note of one more step that is remembered; forget all when there are too many."""
        self._steps += 1
        if self._steps > _MAX_CACHED_STEPS:
            self._steps = 0
            self.origin.forget()
            for state in self._states.values():
                state.forget()
            self._states.clear()

    def _moving(self, closure: frozenset[int]) -> bool:
        return self.accept in closure or any(self._moves[state] for state in closure)

    def closure(self, raw: frozenset[int], context: int) -> frozenset[int]:
        """What can be reached from `raw` without reading, where `context` holds."""
        found, todo = set(raw), list(raw)
        while todo:
            for condition, target in self._free[todo.pop()]:
                if target not in found and (condition < 0 or context >> condition & 1):
                    found.add(target)
                    todo.append(target)
        return frozenset(found)

    def step(self, closure: frozenset[int], color: int) -> State:
        """The state after reading a character of `color`."""
        if self._stopping and self.accept in closure:
            return self.matched
        targets = {
            target for state in closure for colors, target in self._moves[state] if color in colors
        }
        if self._floating:
            if not targets and self._only_at_start and not self._conditions.inner:
                ended = self.closure(frozenset((self.start,)), END)
                if self.accept not in ended:
                    return self.failed
            targets.add(self.start)
        elif not targets:
            return self.failed
        raw = frozenset(targets)
        state = self._states.get(raw)
        if state is None:
            state = self._states[raw] = State(self, raw, 0)
        return state

    def search(self, text: str, contexts: list[int] | None) -> bool:
        """There is a match somewhere in `text`.

        `contexts` may be None when there are no conditions but the ends of the text.
        """
        state, matched, failed = self.origin, self.matched, self.failed
        if contexts is None:
            for character in text:
                state = state[character]
                if state is matched:
                    return True
                if state is failed:
                    return False
            return state.accepts(END if text else START | END)
        for step in zip(text, contexts, strict=False):
            state = state[step]
            if state is matched:
                return True
        return state.accepts(contexts[-1])

    def positions(self, subject: Subject, *, backwards: bool) -> list[bool]:
        """For each position, whether a match ends there; `backwards`, whether one starts there.

        The automaton must be floating, not stopping, and for `backwards` reversed.
        """
        text, contexts = subject.text, subject.contexts
        if backwards:
            text, contexts = text[::-1], contexts[::-1]
        state, found = self.origin, []
        for step in zip(text, contexts, strict=False):
            found.append(state.accepts(step[1]))
            state = state[step]
        found.append(state.accepts(contexts[-1]))
        return found[::-1] if backwards else found

    def longest(self, subject: Subject, start: int, stop: int) -> int | None:
        """Where the longest match that begins at `start` ends, not after `stop`."""
        text, contexts, failed = subject.text, subject.contexts, self.failed
        state, last = self.origin, None
        for at in range(start, stop):
            context = contexts[at]
            if state.accepts(context):
                last = at
            state = state[text[at], context]
            if state is failed:
                return last
        return stop if state.accepts(contexts[stop]) else last

    def shortest(self, subject: Subject, start: int, least: int, stop: int) -> int | None:
        """Where the shortest match that begins at `start` ends, from `least` to `stop`."""
        text, contexts, failed = subject.text, subject.contexts, self.failed
        state = self.origin
        for at in range(start, stop):
            context = contexts[at]
            if at >= least and state.accepts(context):
                return at
            state = state[text[at], context]
            if state is failed:
                return None
        return stop if state.accepts(contexts[stop]) else None


class Conditions:
    """The constraints of a pattern, numbered: those within a lookaround come before it.

    `inner` is true when there are others than the ends of the text.
    """

    def __init__(self, root: Node, palette: Palette) -> None:
        self._palette = palette
        self._numbers: dict[Edge | Look, int] = {Edge.START: 0, Edge.END: 1}
        self._automata: list[Automaton | frozenset[int]] = []
        self._looks: list[Look] = []
        self.inner = False
        self._collect(root)

    def _collect(self, node: Node) -> None:
        match node:
            case Look(body):
                self._collect(body)
                if node not in self._numbers:
                    self._numbers[node] = len(self._numbers)
                    self._add(node)
            case Group(body) | Repeat(body):
                self._collect(body)
            case Sequence(parts) | Choice(parts):
                for part in parts:
                    self._collect(part)

    def _add(self, look: Look) -> None:
        self.inner = True
        body = look.body
        while isinstance(body, Sequence) and len(body.items) == 1:
            (body,) = body.items
        self._looks.append(look)
        if isinstance(body, Chars):
            self._automata.append(self._palette.frozen[body])
            return
        automaton = Automaton(body, self, self._palette)
        automaton.check_size()
        if look.ahead:
            automaton.reverse()
        self._automata.append(automaton.floating(stopping=False))

    def number(self, node: Edge | Look) -> int:
        """The number of a condition, which is its bit in a context."""
        return self._numbers[node]

    def subject(self, text: str) -> Subject:
        """`text` with its contexts."""
        contexts = [0] * (len(text) + 1)
        contexts[0] |= START
        contexts[-1] |= END
        subject = Subject(text, contexts)
        for look, automaton in zip(self._looks, self._automata, strict=True):
            bit = 1 << self._numbers[look]
            if isinstance(automaton, Automaton):
                holds = automaton.positions(subject, backwards=look.ahead)
            else:
                holds = [self._palette[character] in automaton for character in text]
                holds.insert(len(text) if look.ahead else 0, False)
            for at, truth in enumerate(holds):
                if truth is not look.negative:
                    contexts[at] |= bit
        return subject
