"""Run schedules of the simulated world, and make smaller what breaks the contract.

``python -m tools.simulate --schedules 100000`` draws schedules from ``--seed``, by default the
commit's; ``--schedule SEED`` runs the one with that seed, with all faults.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.property.test_simulation import schedules
from tests.support.run.seeds import SEED
from tests.support.simulation.checker import ContractViolation
from tests.support.simulation.world import Schedule, shrunk


def main() -> int:
    """Run; 1 when a schedule breaks the contract."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--schedule", type=int)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the gateways log each fault
    if arguments.schedule is not None:
        return _explain(Schedule(arguments.schedule))
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for number, schedule in enumerate(schedules(arguments.seed, arguments.schedules), 1):
        try:
            outcomes[schedule.run().outcome] += 1
        except ContractViolation:
            return _explain(schedule)
        if number % 10_000 == 0:
            print(f"{number} schedules, {time.monotonic() - began:.0f} s", flush=True)
    print(f"seed {arguments.seed}: {dict(outcomes)}")
    return 0


def _explain(schedule: Schedule) -> int:
    if not _fails(schedule):
        print(f"{schedule} keeps the contract")
        return 0
    try:
        shrunk(schedule, _fails).run()
    except ContractViolation as violation:
        print(violation)
    return 1


def _fails(schedule: Schedule) -> bool:
    try:
        schedule.run()
    except ContractViolation:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
