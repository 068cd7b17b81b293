"""Declarations that gateway, Spark job and client share: schemas, types, headers, settings.

The ``.avsc`` files beside this module are the contract of the topics; this module only finds them,
in a checkout as in an installed wheel. The other files are listed in the folder's README.
"""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache  # a start asks for those of an envelope several times for each table
def text(name: str) -> str:
    """Return a schema as JSON text, as its file has it.

    Args:
        name: Name of the file without ``.avsc``, such as ``progress``.

    Raises:
        FileNotFoundError: there is no schema of that name.
    """
    return resources.files(__name__).joinpath(f"{name}.avsc").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Return a schema, parsed; a new dict for each call.

    Args:
        name: Name of the file without ``.avsc``.

    Raises:
        FileNotFoundError: there is no schema of that name.
    """
    schema = json.loads(text(name))
    assert isinstance(schema, dict), f"{name}.avsc is not a record, enum or fixed"
    return schema
