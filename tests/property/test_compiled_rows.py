"""The compiled row path against the interpreted one, on a few inputs of tools/fuzz_rows.py."""

from __future__ import annotations

from gateway.routing.row.native import why_not_built
from tools.fuzz_rows import RowFuzzer

if why_not_built() is None:

    def test_both_forms_make_the_same_of_usual_odd_and_broken_changes(seed: int) -> None:
        fuzzer = RowFuzzer(seed)

        fuzzer.run(5_000)

        wanted = (
            *("compiled", "routed", "failed", "copies compiled", "copied", "copy failed"),
            *("series", "series failed", "transactions in series"),
        )
        assert all(fuzzer.outcomes[outcome] for outcome in wanted)
