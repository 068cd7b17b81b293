"""Any sequence of faults under load: after each, everything is as if there had been none."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.backends.rack import Rack
from tests.support.gateway.fault_stage import CAUGHT_UP_S, FAULTS, FIRST_START_POINTS, Stage, Usage
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow, pytest.mark.seeded]

WINDOW = 4
"""Attempts of which the least counts: one that has just begun holds more for a moment."""
WINDOWS = range(3, 8)
"""Windows to compare, the first of which warms up. A heap that has not found its size grows in some
of them; what an attempt leaves behind grows in all."""
FLAT_KB = 4 * 1024
"""Bound of the growth over a window, in kB; a client left behind costs more in each attempt."""
ROUNDS = int(os.environ.get("PGSLUICE_FAULT_ROUNDS") or 4)


@pytest.fixture
def stage(rack: Rack, registry: str, tmp_path: Path, seed: int) -> Iterator[Stage]:
    with Stage(tmp_path, rack, registry, seed) as made:
        yield made


def sequence(seed: int, rounds: int) -> list[str]:
    """Names of faults in a random order, each about as often as any other."""
    pick = random.Random(seed)
    chosen: list[str] = []
    while len(chosen) < rounds:
        chosen += pick.sample(sorted(FAULTS), len(FAULTS))
    return chosen[:rounds]


def test_a_sequence_of_faults_leaves_no_trace(
    stage: Stage, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    done: Counter[str] = Counter()
    usages: list[Usage] = []

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    with stage.load():
        for point in FIRST_START_POINTS:
            stage.die_at(point)
            done[f"die in the first start at {point}"] += 1
        stage.restart()
        stage.catch_up()
    stage.check()
    for number, name in enumerate(sequence(seed, ROUNDS), 1):
        began = time.monotonic()
        with stage.load():
            FAULTS[name](stage)
            stage.catch_up()
        stage.check()
        done[name] += 1
        usages.append(stage.usage())
        took_s = time.monotonic() - began
        say(f"round {number}: {name}: {took_s:.0f} s, {usages[-1]}")

    # In one process: what an attempt leaves behind would add up.
    held: list[Usage] = []
    while len(held) < WINDOWS.start or not is_flat(*held[-2:]):
        assert len(held) < WINDOWS.stop, held
        held.append(least([reset(stage) for _ in range(WINDOW)]))
    stage.check()
    say(f"{ROUNDS} rounds, seed {seed}, no difference; {dict(sorted(done.items()))}")
    say(f"after the first round {usages[0]}, after the last {usages[-1]}")
    say(f"in one process, the least of {WINDOW} attempts: {held}")


def least(usages: Sequence[Usage]) -> Usage:
    """Return the least of each figure: the part that is held for good."""
    return Usage(min(u.rss_kb for u in usages), min(u.descriptors for u in usages))


def is_flat(before: Usage, after: Usage) -> bool:
    """Whether nothing was left behind in between."""
    return after.descriptors <= before.descriptors + 2 and after.rss_kb <= before.rss_kb + FLAT_KB


def reset(stage: Stage) -> Usage:
    """Cut off the gateway from both sides; what the next attempt holds when it has caught up."""
    attempts = stage.attempts()
    with stage.load():
        FAULTS["reset_the_source"](stage)
        FAULTS["reset_kafka"](stage)
        # Between two attempts next to nothing is open, which would be the wrong measure.
        wait_until(lambda: stage.attempts() > attempts, CAUGHT_UP_S, "the next attempt to stream")
        stage.catch_up()
    return stage.usage()
