"""Feed mutated messages of real servers to the decoder: ``python -m tools.fuzz_pgoutput``.

Whatever the bytes are, the decoder, the tuple splitter and the assembler may raise nothing but
`ProtocolError` (the assembler also the `FatalError` of a COMMIT PREPARED without its rows), and
after an error the decoder stands where it stood before.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from gateway.core.errors import FatalError, ProtocolError
from gateway.pgoutput.decoder import Decoder, decode_message
from gateway.pgoutput.frames import XLOGDATA_HEADER
from gateway.pgoutput.tuples import split_tuple
from gateway.transactions import Assembler

__all__ = ["Fuzzer", "read_corpus"]

GOLDEN: Final = Path(__file__).parent.parent / "tests" / "golden"
_TAGS: Final = b"BCORYIUDTMSEcAbPKrp"
_HEADER: Final = b"w" + bytes(XLOGDATA_HEADER - 1)
_EXTREMES: Final = (b"\0\0", b"\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff")
_STREAM_START: Final = b"S\0\0\0\x07\x01"
_MAX_BYTES: Final = 400


def read_corpus(folder: Path = GOLDEN) -> list[bytes]:
    """Return the captured messages, each once; long ones are left out, they are slow."""
    found = set()
    for path in sorted(folder.glob("*/*.hex")):
        bare = re.sub(r" *#.*", "", path.read_text(encoding="utf-8"))
        found |= {bytes.fromhex(block) for block in re.split(r"\n\s*\n", bare)}
    return sorted(message for message in found if 0 < len(message) <= _MAX_BYTES)


class Fuzzer:
    """Makes inputs of a seed and tries them.

    Attributes:
        outcomes: How often what happened, to show that both sides were reached.
    """

    def __init__(self, corpus: list[bytes], seed: int) -> None:
        self._corpus = corpus
        self._random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()

    def run(self, inputs: int) -> None:
        """Try so many inputs.

        Raises:
            AssertionError: something else was raised, or an error left a trace; with the input.
        """
        for number in range(inputs):
            data = self._mutated()
            try:
                (self._decode, self._decode_data, self._split, self._assemble)[number % 4](data)
            except Exception as error:
                raise AssertionError(f"{type(error).__name__} for {data.hex()}") from error

    def _mutated(self) -> bytes:
        pick = self._random
        data = bytearray(pick.choice(self._corpus))
        for _ in range(pick.randint(0, 3)):
            at = pick.randrange(len(data) + 1)
            match pick.randrange(6):
                case 0:
                    data[at : at + 1] = pick.randbytes(1)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = pick.randbytes(pick.randint(1, 8))
                case 3:
                    extreme = pick.choice(_EXTREMES)
                    data[at : at + len(extreme)] = extreme
                case 4:
                    del data[at : at + pick.randint(1, 8)]
                case _:
                    other = pick.choice(self._corpus)
                    data[at:] = other[min(at, len(other)) :]
        if pick.random() < 0.05:
            data[:1] = bytes([pick.choice(_TAGS)])
        return bytes(data)

    def _decode(self, data: bytes) -> None:
        pick = self._random
        version = pick.randint(1, 4)
        decoder = Decoder(version, parallel_streaming=version == 4 and pick.random() < 0.5)
        if version > 1 and pick.random() < 0.5:
            decoder.decode(_STREAM_START)
        before = decoder.in_stream
        try:
            decoder.decode(data)
            self.outcomes["decoded"] += 1
        except ProtocolError:
            assert decoder.in_stream == before, "an error has changed the state"
            self.outcomes["refused"] += 1

    def _decode_data(self, data: bytes) -> None:
        try:
            decode_message(data, 0, streamed=self._random.random() < 0.5)
            self.outcomes["data decoded"] += 1
        except ProtocolError:
            self.outcomes["data refused"] += 1

    def _split(self, data: bytes) -> None:
        try:
            _, end = split_tuple(data, self._random.choice((6, 10, 1, 0, len(data))))
            assert end <= len(data), "a tuple that ends behind the message"
            self.outcomes["split"] += 1
        except ProtocolError:
            self.outcomes["not split"] += 1

    def _assemble(self, data: bytes) -> None:
        pick = self._random
        # In a stream block data messages are kept as they are: then it is their order that counts.
        openers = [_STREAM_START] if pick.random() < 0.7 else pick.choices(self._corpus, k=2)
        frames = [_HEADER + opener for opener in openers]
        frame = _HEADER + data
        if pick.random() < 0.1:
            frame = frame[: pick.randint(0, len(frame))]
        assembler = Assembler(version=4, parallel_streaming=pick.random() < 0.5)
        try:
            for each in (*frames, frame):
                assembler.push([each])
            self.outcomes["assembled"] += 1
        except ProtocolError:
            self.outcomes["not assembled"] += 1
        except FatalError as error:
            assert "COMMIT PREPARED" in error.message, error.message
            self.outcomes["not assembled"] += 1
        finally:
            assembler.close()


def main() -> int:
    """Fuzz; return 1 when an input has raised something else."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz_pgoutput", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), metavar="N")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    fuzzer = Fuzzer(read_corpus(), arguments.seed)
    began = time.monotonic()
    try:
        fuzzer.run(arguments.inputs)
    except AssertionError as error:
        print(f"FOUND: {error}", file=sys.stderr)
        return 1
    taken_s = time.monotonic() - began
    print(f"{arguments.inputs} inputs in {taken_s:.0f} s: {dict(sorted(fuzzer.outcomes.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
