"""What gateway and consumers share: the Avro schemas of the topics, and the settings.

The ``.avsc`` files beside this module are the contract; this module only finds them, in a checkout
as in an installed wheel.
"""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache  # a start asks for those of an envelope several times for each table
def text(name: str) -> str:
    """The schema ``name`` as it is written in its file (JSON text).

    Args:
        name: the file's name without ``.avsc``, as in ``"progress"``.

    Raises:
        FileNotFoundError: there is no schema of that name.
    """
    return resources.files(__name__).joinpath(f"{name}.avsc").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """The schema ``name``, parsed; a new dict for each call.

    Raises:
        FileNotFoundError: there is no schema of that name.
    """
    schema = json.loads(text(name))
    assert isinstance(schema, dict), f"{name}.avsc is not a record, enum or fixed"
    return schema
