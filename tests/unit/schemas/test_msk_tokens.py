"""MSK's tokens: signed with the credentials of a fake service, as AWS's own rules compute it."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from schemas import kafka_tokens
from schemas.kafka_tokens import TokenError, with_tokens
from tests.support.backends.answers import AnsweringHandler, serving

KEY_ID, SECRET_KEY, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/EXAMPLE", "session-token=="
PROPERTIES = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.plugin": "msk",
    "sasl.oauthbearer.config": "region=eu-west-1",
}


class _Credentials(AnsweringHandler):
    """Answer of the agent of ECS and EKS to a container."""

    def do_GET(self) -> None:
        self.answer_json(
            {
                "AccessKeyId": KEY_ID,
                "SecretAccessKey": SECRET_KEY,
                "Token": SESSION,
                "Expiration": "2099-01-01T00:00:00Z",
            }
        )


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kafka_tokens._source.cache_clear()
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Credentials)) as server:
        monkeypatch.setenv(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{server.server_port}/"
        )
        yield


def signature(url: str) -> str:
    """Signature version 4 of a presigned GET, by AWS's "Create a signed AWS API request"."""
    split = urlsplit(url)
    query = [
        pair for pair in parse_qsl(split.query) if pair[0] not in ("X-Amz-Signature", "User-Agent")
    ]
    given = dict(query)
    _, day, region, service, end = given["X-Amz-Credential"].split("/")
    canonical = "\n".join(
        [
            "GET",
            split.path,
            "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query)),
            f"host:{split.netloc}",
            "",
            "host",
            hashlib.sha256(b"").hexdigest(),
        ]
    )
    to_sign = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            given["X-Amz-Date"],
            f"{day}/{region}/{service}/{end}",
            hashlib.sha256(canonical.encode()).hexdigest(),
        ]
    )
    key = b"AWS4" + SECRET_KEY.encode()
    for part in (day, region, service, end):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, to_sign.encode(), "sha256").hexdigest()


def test_the_token_is_a_signed_request_to_connect(credentials: None) -> None:
    token, expiry = with_tokens(PROPERTIES)["oauth_cb"]("region=eu-west-1")

    url = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    given = dict(parse_qsl(urlsplit(url).query))
    assert urlsplit(url).netloc == "kafka.eu-west-1.amazonaws.com"
    assert given["Action"] == "kafka-cluster:Connect"
    assert given["X-Amz-Credential"].startswith(f"{KEY_ID}/")
    assert given["X-Amz-Security-Token"] == SESSION
    assert given["X-Amz-Signature"] == signature(url)
    signed = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert expiry == signed.timestamp() + int(given["X-Amz-Expires"])


@pytest.mark.parametrize("config", ["", "zone=x", "region=a,profile=b,role_arn=c", "region"])
def test_a_configuration_of_something_else_is_an_error(config: str) -> None:
    with pytest.raises(TokenError, match="is not one of the plugin 'msk'") as caught:
        with_tokens({**PROPERTIES, "sasl.oauthbearer.config": config})
    assert not caught.value.may_pass


def test_missing_credentials_are_named(credentials: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    with pytest.raises(TokenError, match="no AWS credentials") as caught:
        with_tokens(PROPERTIES)
    assert caught.value.may_pass
