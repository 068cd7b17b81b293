"""Names read back: what shows that `gateway.core.names` loses nothing."""

from __future__ import annotations

import re

_AVRO_ESCAPE = re.compile(r"_x([0-9A-F]{4,6})_")


def identifier_of(name: str) -> str:
    """Read back what `avro_name` wrote."""
    return _AVRO_ESCAPE.sub(lambda match: chr(int(match[1], 16)), name)
