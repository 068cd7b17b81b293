"""The Spark job's figures as Prometheus reads them."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from spark_consumer.errors import SettingsError
from spark_consumer.observe.figures import PHASES, Figures
from spark_consumer.observe.health import Pulse, health, readiness
from spark_consumer.observe.metrics import exposition
from spark_consumer.observe.server import serve


def test_figures_are_served_by_subscription() -> None:
    figures = Figures(end_lsn=256, commit_time=1_500_000, records=7, cuts=2, tables_held=1)
    figures.skipped = 3
    assert figures.lag == 0
    figures.waiting_since = int((time.time() - 60) * 1_000_000)
    with figures.phase("apply"):
        pass

    with (
        serve("127.0.0.1:0", (), {'s"1': figures}, Pulse()) as port,
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer,
    ):
        text = answer.read().decode()

    assert 'pgsluice_consumer_end_lsn{subscription="s\\"1"} 256' in text
    assert 'pgsluice_consumer_commit_timestamp_seconds{subscription="s\\"1"} 1.5' in text
    assert 'pgsluice_consumer_records_total{subscription="s\\"1"} 7' in text
    assert 'pgsluice_consumer_skipped_total{subscription="s\\"1"} 3' in text
    assert 'pgsluice_consumer_tables_held{subscription="s\\"1"} 1' in text
    lag = re.search(r'pgsluice_consumer_lag_seconds{subscription="s\\"1"} ([0-9.]+)', text)
    assert lag is not None and 60 <= float(lag[1]) < 120
    assert 'pgsluice_consumer_phase_seconds_total{subscription="s\\"1",phase="apply"} 0.0' in text


def test_the_lag_of_each_table_is_that_of_the_oldest_change_that_it_lacks() -> None:
    since = int((time.time() - 60) * 1_000_000)
    text = exposition({"s": Figures(tables={"public.a-x0020-b": None, 'public."b"': since})})

    assert 'table_lag_seconds{subscription="s",table="public.a b"} 0.0\n' in text
    lag = re.search(r'table_lag_seconds{subscription="s",table="public.\\"b\\""} ([0-9.]+)', text)
    assert lag is not None and 60 <= float(lag[1]) < 120


def test_a_held_subscription_lags_since_what_it_has_applied() -> None:
    figures = Figures(commit_time=int((time.time() - 600) * 1_000_000))
    assert figures.lag == 0
    figures.held = "topic s.transaction is gone"
    assert 600 <= figures.lag < 660


def test_an_address_that_cannot_be_used_is_named() -> None:
    complaint = "metrics_listen: 'nowhere' cannot be used"
    with pytest.raises(SettingsError, match=complaint), serve("nowhere", (), {}, Pulse()):
        pass


def test_phases_and_counters_are_there_before_anything_has_happened() -> None:
    text = exposition({"s": Figures()})

    for phase in PHASES:
        line = f'pgsluice_consumer_phase_seconds_total{{subscription="s",phase="{phase}"}} 0.000'
        assert line in text
    for name in ("records", "cuts", "skipped"):
        assert f'pgsluice_consumer_{name}_total{{subscription="s"}} 0' in text
    assert "silent_seconds{" not in text


def ask(port: int | None, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_job_is_ready_once_all_its_subscriptions_are_read() -> None:
    first, second = Figures(), Figures()
    with serve("127.0.0.1:0", (), {"a": first, "b": second}, Pulse()) as port:
        assert ask(port, "/healthz") == (200, "ok\n")
        assert ask(port, "/readyz") == (503, "subscription a is not read yet\n")
        first.see()
        assert ask(port, "/readyz") == (503, "subscription b is not read yet\n")
        second.see()
        assert ask(port, "/readyz") == (200, "ok\n")
        assert ask(port, "/other")[0] == 404


def test_a_query_of_which_nothing_is_seen_is_not_ready_and_a_job_of_which_nothing_is_is_ill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    for module in ("figures", "health"):
        stopped = SimpleNamespace(monotonic=lambda: now)
        monkeypatch.setattr(f"spark_consumer.observe.{module}.time", stopped)
    pulse, busy, silent = Pulse(), Figures(), Figures()
    busy.see()
    silent.seen_at = now - 301

    assert readiness(pulse, {"a": busy, "b": silent}) == (
        "nothing has been seen of subscription b for 301 s"
    )
    assert health(pulse, {"b": silent}) is None
    pulse.at -= 302
    # A long catch-up keeps the loop waiting, and is seen at work.
    assert health(pulse, {"a": busy, "b": silent}) is None
    assert health(pulse, {"b": silent}) == "nothing has been seen of the job for 301 s"
    assert readiness(pulse, {"b": silent}) == "nothing has been seen of the job for 301 s"


def test_the_help_of_every_metric_is_a_sentence() -> None:
    found = re.findall(r"# HELP (\S+) (.*)", exposition({"s": Figures()}))

    assert found
    for name, text in found:
        assert text[0].isupper() or text[0] == "1", name
        assert text.endswith(".") and len(text.split()) >= 7, name


def test_the_records_that_wait_and_the_tables_at_work_are_told() -> None:
    figures = Figures()
    figures.progress.read([10, 5])
    figures.progress.begin(0, 2)
    figures.progress.applied("public.t", 4)
    with figures.progress.table("public.u"):
        text = exposition({"s": figures})

    assert 'pgsluice_consumer_waiting_records{subscription="s"} 11\n' in text
    assert 'pgsluice_consumer_applying_tables{subscription="s"} 1\n' in text
