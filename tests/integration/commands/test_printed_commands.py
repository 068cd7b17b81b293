"""Commands that docs/operations.md prints, as they stand there, beside a gateway that runs."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, unhurried
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "operations.md"
ELSEWHERE: Final = {"init", "run", "verify", "completion"}
"""Commands with tests of their own, which need no gateway or a Spark job."""
ENDLESS: Final = ("--from-beginning", "--limit", "1")
ANSWERS: Final = {
    "check": "definitions: 1 publication, 2 subscriptions",
    "explain orders id=7": r"{s}: receives it \(INSERT, UPDATE, DELETE\)",
    "tail shop.orders": r"{s}\.public\.orders",
    "tail shop --since 2026-03-01 10:00 --no-follow --json": "",
    "copy orders": "^copied$",
    "copy public.orders --subscription eu --where id BETWEEN 1000 AND 2000": "^copied$",
    "copy --cancel": "nothing to cancel",
    "resume orders": "^copied$",
}
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE orders;
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
CREATE SUBSCRIPTION {s}_eu CONNECTION '' PUBLICATION p;
"""


def printed_commands() -> Iterator[list[str]]:
    """Yield the arguments of each command in a block of code, without its comment and its pipe."""
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```", DOCUMENT.read_text(), re.DOTALL | re.M):
        for line in re.findall(r"^ *pgsluice (.*?)(?: \|)?$", block, re.M):
            arguments = shlex.split(line, comments=True)
            if arguments[0] not in ELSEWHERE:
                yield arguments


def test_the_commands_of_the_document_do_what_it_says(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (7), (1500)")
    s = scene(DEFINITIONS)
    names = {"shop": s.slot, "shop.orders": f"{s.slot}.orders", "eu": f"{s.slot}_eu"}
    gateway = s.project.start()
    gateway.wait_until_copied()

    played = set()
    for arguments in printed_commands():
        command = " ".join(arguments)
        more = ENDLESS if arguments[0] == "tail" and "--no-follow" not in arguments else ()
        ended = s.cli(*(names.get(each, each) for each in arguments), *more)
        says = re.sub(r"^following .*; Ctrl-C ends it\n$", "", unhurried(ended.err))
        assert (ended.code, says) == (0, ""), (command, ended)
        assert re.search(ANSWERS[command].format(s=s.slot), ended.out, re.M), (command, ended.out)
        played.add(command)

    assert played == ANSWERS.keys()
    # The first copy, `copy orders` and `resume orders`; and the part that `eu` alone asked for.
    wait_until(lambda: copied(s, s.slot) == {7: 3, 1500: 3}, 60, "all copies of the table")
    wait_until(lambda: copied(s, f"{s.slot}_eu") == {7: 3, 1500: 4}, 60, "all copies for eu")
    assert gateway.terminate() == 0


def copied(s: Scene, subscription: str) -> Counter[int]:
    """Return how often each row was published by a copy."""
    records = s.read("orders", subscription)
    values = (record.value for record in records if record.value is not None)
    return Counter(value["after"]["id"] for value in values if value["op"] == "r")
