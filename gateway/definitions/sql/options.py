"""Values of WITH (...) options, read as PostgreSQL's defGet functions read them."""

from __future__ import annotations

from typing import Any, Final

from gateway.definitions.model import Operation

__all__ = [
    "get_boolean",
    "get_generated_columns",
    "get_operations",
    "get_origin",
    "get_streaming_mode",
    "get_string",
    "split_identifiers",
]

_WHITE_SPACE: Final = " \t\n\r\f\v"
_NAME_BYTES: Final = 63


def get_string(name: str, argument: Any) -> str:
    """Read an option value of any type as text.

    `argument` is libpg_query's Node, or None if no value was written.

    Raises:
        ValueError: there is no value. All errors of this module are in PostgreSQL's words.

    Source: defGetString in define.c.
    """
    if argument is None:
        raise ValueError(f"{name} requires a parameter")
    match argument.WhichOneof("node"):
        case "integer":
            return str(argument.integer.ival)
        case "float":
            return str(argument.float.fval)
        case "boolean":
            return "true" if argument.boolean.boolval else "false"
        case "string":
            return str(argument.string.sval)
        case "type_name":
            return ".".join(part.string.sval for part in argument.type_name.names)
        case "list":
            return ".".join(part.string.sval for part in argument.list.items)
        case kind:
            raise ValueError(f"unrecognized node type: {kind}")


def get_boolean(name: str, argument: Any) -> bool:
    """Read a boolean; a missing value means true.

    Source: defGetBoolean in define.c.
    """
    if argument is None:
        return True
    value = get_string(name, argument)
    if argument.WhichOneof("node") == "integer":
        if value in ("0", "1"):
            return value == "1"
    elif value.lower() in ("true", "on"):
        return True
    elif value.lower() in ("false", "off"):
        return False
    raise ValueError(f"{name} requires a Boolean value")


def get_streaming_mode(name: str, argument: Any) -> str:
    """Read ``streaming``: off, on or parallel; a missing value means on.

    Source: defGetStreamingMode in subscriptioncmds.c.
    """
    if argument is not None and get_string(name, argument).lower() == "parallel":
        return "parallel"
    try:
        return "on" if get_boolean(name, argument) else "off"
    except ValueError:
        raise ValueError(f'{name} requires a Boolean value or "parallel"') from None


def get_origin(name: str, argument: Any) -> str:
    """Read ``origin``: none or any.

    Source: parse_subscription_options in subscriptioncmds.c.
    """
    value = get_string(name, argument)
    if value.lower() not in ("none", "any"):
        raise ValueError(f'unrecognized origin value: "{value}"')
    return value.lower()


def get_generated_columns(name: str, argument: Any) -> bool:
    """Read ``publish_generated_columns``: none, or stored, which is true.

    Source: defGetGeneratedColsOption in publicationcmds.c (18).
    """
    value = "" if argument is None else get_string(name, argument)
    if value.lower() not in ("none", "stored"):
        raise ValueError(f'invalid value for publication parameter "{name}": "{value}"')
    return value.lower() == "stored"


def get_operations(name: str, argument: Any) -> frozenset[Operation]:
    """Read ``publish``, a list of operations in one string.

    Source: parse_publication_options in publicationcmds.c.
    """
    names = split_identifiers(get_string(name, argument))
    if names is None:
        raise ValueError(f'invalid list syntax in parameter "{name}"')
    operations = set()
    for value in names:
        try:
            operations.add(Operation(value))
        except ValueError:
            raise ValueError(
                f'unrecognized value for publication option "{name}": "{value}"'
            ) from None
    return frozenset(operations)


def split_identifiers(text: str) -> list[str] | None:
    """Split a comma-separated list of identifiers; None if its syntax is wrong.

    Unquoted identifiers are folded to lower case; all are truncated to 63 bytes.

    Source: SplitIdentifierString in varlena.c.
    """
    rest = text.strip(_WHITE_SPACE)
    names: list[str] = []
    while rest:
        if rest[0] == '"':
            end = 1
            while True:
                end = rest.find('"', end)
                if end < 0:
                    return None
                if rest[end + 1 : end + 2] != '"':
                    break
                end += 2
            name = rest[1:end].replace('""', '"')
            rest = rest[end + 1 :]
        else:
            end = 0
            while end < len(rest) and rest[end] != "," and rest[end] not in _WHITE_SPACE:
                end += 1
            name = _fold(rest[:end])
            rest = rest[end:]
            if not name:
                return None
        names.append(name.encode()[:_NAME_BYTES].decode(errors="ignore"))
        rest = rest.lstrip(_WHITE_SPACE)
        if not rest:
            break
        if rest[0] != ",":
            return None
        rest = rest[1:].lstrip(_WHITE_SPACE)
        if not rest:
            return None
    return names


def _fold(name: str) -> str:
    """Fold ASCII letters only, as the server does in a multi-byte encoding."""
    return "".join(c.lower() if c.isascii() else c for c in name)
