"""The programs of docs/reading.md run as they are printed there, but for the addresses."""

from __future__ import annotations

import pickle
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reading.md"


def test_the_programs_of_the_page_print_and_keep_the_rows_of_the_source(
    scene: Callable[..., Scene], database: Database, kafka: str, registry: str, tmp_path: Path
) -> None:
    rows, stored, tasks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

    def run(program: str) -> list[str]:
        for printed, real in (
            ("localhost:9092", kafka),
            ("http://localhost:8081", registry),
            ('"s1"', f'"{s.slot}"'),
        ):
            assert printed in program
            program = program.replace(printed, real)
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with database.connect() as connection:
        connection.execute(b"CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute(b"CREATE TABLE u (a int); ALTER TABLE u REPLICA IDENTITY FULL")
        s = scene(
            "CREATE PUBLICATION p FOR ALL TABLES;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
        )
        for number in range(1, 4):
            connection.execute(b"INSERT INTO t VALUES (%s, 'x')", [number])
            connection.execute(b"INSERT INTO u VALUES (1), (2)")
            connection.execute(b"DELETE FROM t WHERE a = %s - 1", [number])
            connection.execute(b"UPDATE u SET a = 3 WHERE a = 2")
            s.run_to(current_lsn(connection))
            run(stored)
            held: list[str] = []
            with closing(sqlite3.connect(tmp_path / "rows.db")) as db:
                for name, key, value in db.execute("SELECT name, key, rows FROM store"):
                    if key:
                        assert key.startswith(("key ", "row "))
                        schema, table = name.split(".")
                        held += [f"{schema} {table} {row}" for row in pickle.loads(value)]
            expected = [
                *(
                    f"public t {{'a': {a}, 'b': '{b}'}}"
                    for a, b in s.source_rows("SELECT * FROM t")
                ),
                *(f"public u {{'a': {a}}}" for (a,) in s.source_rows("SELECT * FROM u")),
            ]
            assert sorted(held) == sorted(expected)
        assert sorted(run(rows)) == sorted(expected)
        last = run(tasks)[-1]

    assert last.endswith("u None {'a': 3}")
