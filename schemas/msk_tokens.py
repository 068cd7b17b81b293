"""Tokens of Amazon MSK's IAM authentication: the plugin ``msk``.

Source: README of aws-msk-iam-sasl-signer-python, which the extra ``msk`` installs.
"""

from __future__ import annotations

from typing import Final

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider

from schemas.kafka_tokens import TokenError

__all__ = ["msk_token"]

_KNOWN: Final = ("region", "profile", "role_arn", "session_name")


def msk_token(config: str) -> tuple[str, float]:
    """Return a token and its expiry in seconds since 1970; a plugin of `schemas.kafka_tokens`.

    Args:
        config: ``region=eu-west-1``, and optionally ``profile=NAME``, or ``role_arn=ARN`` with
            ``session_name=NAME``; separated by commas or blanks.

    Raises:
        TokenError: `config` is something else, or there are no credentials.
        Exception: those of AWS's libraries.
    """
    given = dict(part.partition("=")[::2] for part in config.replace(",", " ").split())
    region, profile, role = (given.get(name) for name in _KNOWN[:3])
    if not region or not given.keys() <= set(_KNOWN) or (profile and role):
        raise TokenError(
            "sasl.oauthbearer.config is not one of the plugin 'msk'",
            hint='for example "region=eu-west-1"; see docs/managed-services.md',
        )
    try:
        token, expiry_ms = _signed(region, profile, role, given.get("session_name", "pgsluice"))
    except AttributeError:  # of None, in place of the credentials
        raise TokenError(
            "plugin 'msk' has found no AWS credentials",
            hint="give this process a role or a profile: `aws sts get-caller-identity` shows it",
            may_pass=True,
        ) from None
    return token, expiry_ms / 1000


def _signed(region: str, profile: str | None, role: str | None, session: str) -> tuple[str, int]:
    signed: tuple[str, int]
    if role:
        signed = Provider.generate_auth_token_from_role_arn(region, role, session)
    elif profile:
        signed = Provider.generate_auth_token_from_profile(region, profile)
    else:
        signed = Provider.generate_auth_token(region)
    return signed
