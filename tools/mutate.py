"""Makes the code wrong, one line at a time, and reports which mutations no test notices.

``python -m tools.mutate [--number 20] [--seed N] [--also TEST...] PATH...`` chooses mutations of
the files under PATH, spread over the files, and runs for each the tests that execute its line,
until one fails. First it asks all tests without servers which lines they execute
(``build/mutations/coverage``, kept until the commit changes); a line that is executed when a module
is imported, or in a process of its own, belongs to no test: all of them are run for it. ``--also``
names tests with servers, which are run when those without find nothing.

The files are changed in place and put back, so the tree has to be clean. Each mutation's outcome
is a line of ``build/mutations/outcomes.jsonl``. The exit code is 1 if a mutation survived.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from coverage import CoverageData

from tests.support.run.seeds import SEED
from tools.mutations import Mutation, mutated, mutations

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "mutations"
WITHOUT_SERVERS: Final = ("tests/unit", "tests/golden", "tests/property")
LONGEST_S: Final = 1200
"""A run that takes longer is one that a mutation made endless: it has noticed."""
_PYTEST: Final = ("-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "--no-header")


def main() -> int:
    """Run the tool; see the module."""
    asked = _parser().parse_args()
    os.chdir(ROOT)
    if _git("status", "--porcelain", "--untracked-files=no"):
        print("mutate: commit first: the files of this tree are changed in place", file=sys.stderr)
        return 2
    chosen = choose(_files(asked.path), asked.number, random.Random(asked.seed))
    print(f"mutate: {len(chosen)} mutations, seed {asked.seed}")
    covering = _covering()
    survived = 0
    for number, mutation in enumerate(chosen, start=1):
        shown = _shown(mutation)
        noticed = _noticed(mutation, covering, asked.also)
        survived += noticed is None
        print(f"{number:4} {'SURVIVED' if noticed is None else 'noticed '} {shown}", flush=True)
        with (FOLDER / "outcomes.jsonl").open("a") as outcomes:
            outcomes.write(json.dumps({"mutation": shown, "noticed": noticed}) + "\n")
    print(f"mutate: {len(chosen) - survived} of {len(chosen)} mutations are noticed")
    return 1 if survived else 0


def choose(files: Iterable[Path], number: int, source: random.Random) -> list[Mutation]:
    """Choose mutations: files at random, and in each turn one mutation of a file."""
    found = {file: mutations(file) for file in files}
    chosen: list[Mutation] = []
    while len(chosen) < number and any(found.values()):
        file = source.choice([file for file in found for _ in found[file]])
        chosen.append(found[file].pop(source.randrange(len(found[file]))))
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate")
    parser.add_argument("path", nargs="+", type=Path, help="files or folders to make wrong")
    parser.add_argument("--number", type=int, default=20, help="how many mutations (20)")
    parser.add_argument("--seed", type=int, default=SEED, help="the choice (follows the commit)")
    parser.add_argument("--also", nargs="+", default=[], help="tests with servers, run at last")
    return parser


def _files(paths: Sequence[Path]) -> list[Path]:
    found = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    return sorted(file for file in found if file.name != "__init__.py")


def _covering() -> dict[tuple[str, int], set[str]]:
    """Return the files of tests that execute a line."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = FOLDER / "coverage"
    made = FOLDER / "commit"
    commit = _git("rev-parse", "HEAD")
    if not data.exists() or not made.exists() or made.read_text() != commit:
        settings = FOLDER / "coveragerc"
        settings.write_text(f"[run]\ndynamic_context = test_function\ndata_file = {data}\n")
        data.unlink(missing_ok=True)
        coverage = ("-m", "coverage", "run", f"--rcfile={settings}")
        subprocess.run([sys.executable, *coverage, *_PYTEST, *WITHOUT_SERVERS], check=True)
        made.write_text(commit)
    found: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    read = CoverageData(str(data))
    read.read()
    for file in read.measured_files():
        if not Path(file).is_relative_to(ROOT):
            continue
        name = str(Path(file).relative_to(ROOT))
        for line, contexts in read.contexts_by_lineno(file).items():
            for context in contexts:
                found[name, line].add(_file_of(context))
    return found


def _file_of(context: str) -> str:
    """Return the file of ``tests.unit.test_a.test_b``; empty for what no test executes."""
    parts = context.split(".")
    while parts and not parts[-1].startswith("test_"):
        parts.pop()
    while parts and not (file := ROOT.joinpath(*parts).with_suffix(".py")).is_file():
        parts.pop()
    return str(file.relative_to(ROOT)) if parts else ""


def _noticed(
    mutation: Mutation, covering: dict[tuple[str, int], set[str]], also: Sequence[str]
) -> str | None:
    """Return the test that fails with the mutation; None if there is none."""
    name = str(mutation.path)
    tests = covering.get((name, mutation.line), set()) - {""}
    source = mutation.path.read_text()
    try:
        mutation.path.write_text(mutated(source, mutation))
        noticed = _first_failure(sorted(tests) or WITHOUT_SERVERS)
        return _first_failure(also) if noticed is None and also else noticed
    finally:
        mutation.path.write_text(source)


def _first_failure(tests: Sequence[str]) -> str | None:
    try:
        ended = subprocess.run(
            [sys.executable, *_PYTEST, "--tb=no", *tests],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    except subprocess.TimeoutExpired:
        return "no end"
    if ended.returncode == 0:
        return None
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else f"exit code {ended.returncode}"


def _shown(mutation: Mutation) -> str:
    line = mutation.path.read_text().splitlines()[mutation.line - 1]
    part = line.encode()[mutation.begin : mutation.end].decode()
    change = f"{part or ' '} -> {mutation.text or ' '}"
    return f"{mutation.path}:{mutation.line}: {line.strip()}  [{change}]"


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
