"""Answers by which a registry refuses the gateway's user."""

from __future__ import annotations

import pytest

from gateway.core.errors import AccessError, FatalError
from gateway.sink.registry.registry import Registry
from tests.support.backends.registry_answers import answering_registry


@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_refuses_the_user_withholds_a_right(status: int) -> None:
    refusal = b'{"error_code": 40101, "message": "no such user"}'
    with answering_registry(None, {7: (status, refusal)}) as server:
        registry = Registry({"url": server.url})

        with pytest.raises(AccessError, match="no such user") as raised:
            registry.find_text(7)

    assert raised.value.hint is not None and "basic.auth.user.info" in raised.value.hint


def test_a_registry_that_sends_elsewhere_is_named_with_what_to_set() -> None:
    with answering_registry(None, {7: (308, b"moved")}) as server:
        registry = Registry({"url": server.url})

        with pytest.raises(FatalError, match=r"another address \(HTTP 308\)") as raised:
            registry.find_text(7)

    assert raised.value.hint is not None and "registry.url" in raised.value.hint
