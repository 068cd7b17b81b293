"""Certificate authorities of the registry's client: none for a registry that is asked over HTTP.

Confluent's client loads all authorities of the ``certifi`` package when it is constructed, which
costs 25 ms of CPU, also for a registry that never shows a certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["without_unused_authorities"]

_CERTIFICATES: Final = "ssl.ca.location"
_NEED_AUTHORITIES: Final = ("ssl.", "bearer.")
_NO_AUTHORITY: Final = Path(__file__).parent
"""A folder without certificates: whatever uses TLS in spite of the URL is refused, not trusted."""


def without_unused_authorities(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a client that loads no authorities if its registry has no TLS.

    They are unchanged if a URL is not ``http://``, if a property of TLS is set, or one of OAuth,
    whose server may be reached by ``https://``; and where this package lies in an archive.
    """
    urls = [url.strip().lower() for url in str(properties.get("url", "")).split(",")]
    plain = all(url.startswith("http://") for url in urls)
    needed = any(name.startswith(_NEED_AUTHORITIES) for name in properties)
    if not plain or needed or not _NO_AUTHORITY.is_dir():
        return dict(properties)
    return {**properties, _CERTIFICATES: str(_NO_AUTHORITY)}
