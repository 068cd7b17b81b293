"""A short run of the fuzzer; ``python -m tools.fuzz_pgoutput`` tries a million inputs."""

from __future__ import annotations

from tools.fuzz_pgoutput import Fuzzer, read_corpus


def test_mutated_messages_raise_nothing_but_protocol_errors(seed: int) -> None:
    fuzzer = Fuzzer(read_corpus(), seed)

    fuzzer.run(20_000)

    # It is no test of the decoder when nothing gets through, or everything.
    assert min(fuzzer.outcomes.values()) > 300, fuzzer.outcomes
    assert len(fuzzer.outcomes) == 8
