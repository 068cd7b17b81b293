"""Names read back: what shows that `gateway.core.names` loses nothing."""

from __future__ import annotations

import re

_AVRO_ESCAPE = re.compile(r"_x([0-9A-F]{4,6})_")
_TOPIC_ESCAPE = re.compile(r"-x002Dx|-x([0-9A-F]{4,6})-")


def identifier_of(name: str) -> str:
    """Read back what `avro_name` wrote."""
    return _AVRO_ESCAPE.sub(lambda match: chr(int(match[1], 16)), name)


def topic_part_of(part: str) -> str:
    """Read back what `topic_part` wrote."""
    return _TOPIC_ESCAPE.sub(
        lambda match: "-x" if match[1] is None else chr(int(match[1], 16)), part
    )
