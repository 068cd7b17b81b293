"""CPU time of a JVM: of its threads by kind, of its Java code by a flight recording.

It needs a JDK's ``jcmd`` and ``jfr``. The compiler and the collector do not show in a recording;
their threads are timed by the kernel.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Recording", "recording"]

_TICKS: Final = 100
_THREADS: Final = (
    ("C1 ", "compiler"),
    ("C2 ", "compiler"),
    ("GC ", "collector"),
    ("G1 ", "collector"),
)
_CODE: Final = (
    ("read Kafka", r"pgsluice\.small\.Reader|org\.apache\.kafka|\.kafka010\."),
    ("decode", r"pgsluice\.small\.(Decoder|WireRecord|Records)|org\.apache\.avro"),
    ("read the table's files", r"ParquetRows\.read|parquet\.(hadoop\.Parquet\w*Reader|filter2)"),
    ("apply the changes", r"pgsluice\.small\.(Rows|Equality|Change)"),
    ("write the table's files", r"small\.ParquetRows\.write|parquet\."),
    ("statistics", r"pgsluice\.small\.Statistics"),
    ("compile queries", r"\.codegen\.|janino"),
    ("Delta: log and transactions", r"org\.apache\.spark\.sql\.delta|io\.delta"),
    ("plan queries", r"spark\.sql\.(catalyst|execution|classic|internal)"),
    ("run tasks", r"org\.apache\.spark\.(scheduler|executor|storage|broadcast|rdd|shuffle)"),
    ("look for classes", r"java\.lang\.ClassLoader|jdk\.internal\.loader|java\.util\.(zip|jar)"),
    ("files and their names", r"org\.apache\.hadoop\.fs|sun\.nio\.fs|java\.io\.File"),
    ("Py4J", r"py4j\."),
)  # fmt: skip
"""Kinds of code: the innermost frame that matches decides."""


@dataclass(slots=True)
class Recording:
    """Seconds of CPU, by what they were used for."""

    seconds: dict[str, float] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield it as a table, the largest first."""
        whole = sum(self.seconds.values())
        for name, spent in sorted(self.seconds.items(), key=lambda one: -one[1]):
            if spent >= whole / 200:
                yield f"    {name:28}{spent:8.1f} s  {spent / whole:5.0%}"


@contextmanager
def recording(pid: int) -> Iterator[Recording]:
    """Record a JVM; what is yielded is filled at the end."""
    made = Recording()
    before = _threads(pid)
    _tell(pid, "JFR.start", "name=bench", "settings=profile")
    yield made
    used = {name: spent - before.get(name, 0.0) for name, spent in _threads(pid).items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording.jfr"
        _tell(pid, "JFR.stop", "name=bench", f"filename={file}")
        samples = _samples(file)
    java = used.pop("Java", 0.0)
    whole = sum(samples.values()) or 1
    made.seconds = used | {name: java * count / whole for name, count in samples.items()}


def _tell(pid: int, *command: str) -> None:
    subprocess.run(["jcmd", str(pid), *command], check=True, stdout=subprocess.DEVNULL)


def _threads(pid: int) -> dict[str, float]:
    """Return the seconds of CPU that threads have used, by their kind."""
    spent: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text()
        except OSError:
            continue
        name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :]
        kind = next((kind for begin, kind in _THREADS if name.startswith(begin)), "Java")
        spent[kind] = spent.get(kind, 0.0) + sum(map(int, fields.split()[11:13])) / _TICKS
    return spent


def _samples(file: Path) -> Counter[str]:
    """Return how many samples a recording has, by what the code did."""
    command = ["jfr", "print", "--events", "jdk.ExecutionSample", "--stack-depth", "64", str(file)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rules = [(name, re.compile(pattern)) for name, pattern in _CODE]
    found: Counter[str] = Counter()
    for event in text.split("jdk.ExecutionSample {")[1:]:
        stack = re.findall(r"^\s+([\w.$<>]+)\(", event, re.MULTILINE)
        kind = next(
            (name for frame in stack for name, rule in rules if rule.search(frame)), "other"
        )
        found[kind] += 1
    return found
