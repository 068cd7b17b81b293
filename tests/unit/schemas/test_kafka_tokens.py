"""Plugins for Kafka's tokens: each of their ends, and one call at a time for all clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.core.errors import ConfigError, GatewayError, TransientError
from gateway.sink.clients.token_clients import with_callback
from schemas import kafka_tokens
from schemas.kafka_tokens import TokenError, with_tokens

SECRET = "eyJ-a-token"
HERE = __name__
OAUTH = {"sasl.mechanism": "OAUTHBEARER"}

answers: dict[str, Any] = {}
calls: list[str] = []
go_on = threading.Event()


def plugin(config: str) -> Any:
    calls.append(config)
    answer = answers[config]
    if isinstance(answer, BaseException):
        raise answer
    return answer


def hanging(config: str) -> Any:
    calls.append(config)
    go_on.wait()
    return SECRET, time.time() + 600


not_callable = "a text"


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    kafka_tokens._source.cache_clear()
    calls.clear()
    go_on.clear()
    yield
    go_on.set()


def properties(config: str, function: str = "plugin") -> dict[str, str]:
    name = f"{HERE}:{function}"
    return {**OAUTH, "sasl.oauthbearer.plugin": name, "sasl.oauthbearer.config": config}


def test_all_clients_get_one_token_while_it_is_new() -> None:
    answers["role"] = [SECRET, int(time.time()) + 600, "me", {"logicalCluster": "x"}]

    made = [with_tokens(properties("role")) for _ in range(3)]

    assert calls == ["role"]
    for one in made:
        callback = one.pop("oauth_cb")
        assert callback("role") == (SECRET, *answers["role"][1:])
        assert one == {**OAUTH, "sasl.oauthbearer.config": "role"}
    assert with_tokens({"bootstrap.servers": "h:1"}) == {"bootstrap.servers": "h:1"}


def test_a_token_past_half_of_its_life_is_not_given_to_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers["short"] = (SECRET, time.time() + 100)
    with_tokens(properties("short"))
    later = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + 51)
    monkeypatch.setattr(kafka_tokens, "time", later)

    with_tokens(properties("short"))

    assert calls == ["short", "short"]


LATER = 4e9
SOON = object()
"""Stands for an expiry a minute from now, when the test runs."""


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (ValueError(f"bad credentials {SECRET}"), TransientError, "has raised ValueError"),
        (SystemExit(SECRET), TransientError, "has raised SystemExit"),
        (None, ConfigError, "has returned no token"),
        (SECRET, ConfigError, "has returned no token"),
        ((SECRET,), ConfigError, "has returned no token"),
        ((b"bytes", LATER), ConfigError, "no ASCII text"),
        (("", LATER), ConfigError, "no ASCII text"),
        ((f"{SECRET}\n", LATER), ConfigError, "no ASCII text"),
        ((SECRET, "4000000000"), ConfigError, "an expiry that is no number"),
        ((SECRET, float("nan")), ConfigError, "an expiry that is no number"),
        ((SECRET, 1.0), TransientError, "has expired"),
        ((SECRET, 1000 * LATER), ConfigError, "more than a year away"),
        ((SECRET, SOON, 7), ConfigError, "a principal that is no text"),
        ((SECRET, SOON, "m\0e"), ConfigError, "a principal with a zero byte"),
        ((SECRET, SOON, "me", {"a": 1}), ConfigError, "extensions that are no texts"),
        ((SECRET, SOON, "me", {"auth": SECRET}), ConfigError, "OAUTHBEARER does not have"),
        ((SECRET, SOON, "me", {"a_b": "1"}), ConfigError, "OAUTHBEARER does not have"),
        ((SECRET, SOON, "me", {"a": "ü"}), ConfigError, "OAUTHBEARER does not have"),
    ],
)
def test_every_other_end_is_an_error_without_the_token(
    answer: Any, kind: type[GatewayError], text: str
) -> None:
    if isinstance(answer, tuple):
        answer = tuple(time.time() + 60 if part is SOON else part for part in answer)
    answers["x"] = answer
    with pytest.raises(kind, match=text) as caught:
        with_callback(properties("x"))

    assert type(caught.value) is kind
    shown = f"{caught.value} {caught.value.hint} {caught.value.__cause__}"
    assert SECRET not in shown


def test_a_plugin_that_hangs_costs_one_thread_however_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_tokens, "_WAIT_S", 0.05)
    for _ in range(3):
        with pytest.raises(TransientError, match="has not returned a token within"):
            with_callback(properties("late", "hanging"))
    assert calls == ["late"]
    assert [one.name for one in threading.enumerate()].count("pgsluice token") == 1

    go_on.set()
    monkeypatch.setattr(kafka_tokens, "_WAIT_S", 60.0)
    assert with_tokens(properties("late", "hanging"))["oauth_cb"]("late")[0] == SECRET
    assert calls == ["late"]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"sasl.oauthbearer.plugin": "nobody"}, "no plugin 'nobody'"),
        ({"sasl.oauthbearer.plugin": "no_such_module:f"}, "ModuleNotFoundError"),
        ({"sasl.oauthbearer.plugin": f"{HERE}:absent"}, "AttributeError"),
        ({"sasl.oauthbearer.plugin": f"{HERE}:not_callable"}, "is no function"),
        ({"sasl.mechanism": "PLAIN"}, "another mechanism or method"),
        ({"sasl.oauthbearer.method": "oidc"}, "another mechanism or method"),
    ],
)
def test_a_plugin_that_is_not_there_or_never_asked_is_an_error_of_the_settings(
    changed: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.sasl\.oauthbearer\.plugin: .*{text}") as caught:
        with_callback({**properties("x"), **changed})
    assert caught.value.hint

    if changed == {"sasl.oauthbearer.plugin": "nobody"}:
        with pytest.raises(TokenError) as told:
            with_tokens({**properties("x"), **changed})
        assert "msk" in told.value.hint
