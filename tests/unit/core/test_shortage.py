"""A shortage of descriptors, wherever it comes up, is no reason to end."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from gateway.core.errors import ConfigError, FatalError, TransientError
from gateway.core.shortage import shortage
from gateway.sink.clients.properties import make_client
from gateway.transactions.spool import Spool, SpoolFullError


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_is_found_behind_the_errors_raised_for_it(number: int) -> None:
    try:
        try:
            raise OSError(number, os.strerror(number))
        except OSError:
            raise FatalError("the definitions file cannot be read") from None
    except FatalError as error:
        found = shortage(error)

    assert isinstance(found, TransientError)
    assert os.strerror(number) in found.message
    assert "LimitNOFILE" in str(found.hint)


def test_other_errors_are_no_shortage() -> None:
    assert shortage(FatalError("no right to")) is None
    assert shortage(PermissionError(errno.EACCES, "Permission denied")) is None


def test_a_spool_and_a_client_without_descriptors_may_be_tried_again(tmp_path: Path) -> None:
    missing = {"ssl.ca.location": str(tmp_path / "ca.pem"), "security.protocol": "ssl"}
    (tmp_path / "ca.pem").write_text("no certificate")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, limits[1]))
    try:
        with pytest.raises(SpoolFullError, match="Too many open files"):
            for _ in range(taken[0] + 1):
                taken.append(os.dup(taken[0]))  # the numbers below are given out first
                Spool(tmp_path)
    except OSError as error:
        assert error.errno == errno.EMFILE
        with pytest.raises(SpoolFullError, match="Too many open files"):
            Spool(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
    with pytest.raises(ConfigError):
        make_client(AdminClient, missing)
