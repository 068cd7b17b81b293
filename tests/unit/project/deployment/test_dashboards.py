"""deploy/: what dashboard and alerts name exists, and runbooks lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from spark_consumer.observe.figures import Figures
from spark_consumer.observe.metrics import exposition
from tests.unit.monitor.test_metrics import everything

ROOT = Path(__file__).resolve().parents[4]
RULES = ROOT / "deploy" / "prometheus" / "pgsluice.rules.yml"
TESTS = ROOT / "deploy" / "prometheus" / "pgsluice.tests.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "pgsluice.json"
_METRIC = re.compile(r"\b(pgsluice_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
# Prometheus adds them where it scrapes.
SCRAPED = {"job", "instance"}


def known() -> dict[str, set[str]]:
    """Every metric of gateway and Spark job, and its labels."""
    figures = Figures(commit_time=1, waiting_since=1, seconds={"plan": 1.0}, seen_at=1.0)
    figures.tables = {"public.orders": None}
    consumer = exposition({"s": figures})
    found: dict[str, set[str]] = {}
    for family in [*everything(), *text_string_to_metric_families(consumer)]:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found = json.loads(DASHBOARD.read_text())["panels"]
    assert isinstance(found, list)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and a query."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_metric_that_is_named_exists_with_these_labels(where: str, expression: str) -> None:
    metrics = known()
    named = _METRIC.findall(expression)
    assert named
    assert [name for name, _ in named if name not in metrics] == []
    for name, matchers in named:
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert used <= metrics[name] | SCRAPED, where
    labels = set().union(*(metrics[name] for name, _ in named)) | SCRAPED
    grouped = {label.strip() for by in _GROUPED.findall(expression) for label in by.split(",")}
    assert grouped <= labels, where


def test_lag_and_retained_wal_are_on_the_dashboard() -> None:
    shown = {m for p in panels() for t in p["targets"] for m, _ in _METRIC.findall(t["expr"])}

    assert {name for name in known() if "_lag_" in name or "_retained_" in name} <= shown


def test_every_runbook_is_a_heading_of_a_document() -> None:
    for rule in rules():
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in slugs, (rule["alert"], anchor)


def test_the_alerts_that_call_somebody_are_documented_with_their_metric() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text().partition("## Dashboard and alerts")[2]
    table = text.partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(Pgsluice\w+)` \| `(\w+)` \|", table, re.MULTILINE))
    critical = {r["alert"]: r["expr"] for r in rules() if r["labels"]["severity"] == "critical"}

    assert documented.keys() == critical.keys()
    for alert, metric in documented.items():
        assert re.search(rf"\b(pgsluice_gateway_)?{metric}\b", critical[alert]), alert


def test_alerts_have_a_severity_and_a_summary_and_panels_do_not_overlap() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_alert_has_a_test_where_it_fires_and_one_where_it_does_not() -> None:
    document = yaml.safe_load(TESTS.read_text())
    cases = [case for test in document["tests"] for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    rests = {case["alertname"] for case in cases if not case["exp_alerts"]}
    names = {rule["alert"] for rule in rules()}

    assert document["rule_files"] == [RULES.name]
    assert fires == names
    assert rests == names


@pytest.mark.parametrize(
    "command", [["check", "rules", RULES], ["test", "rules", TESTS]], ids=["check", "test"]
)
def test_promtool_takes_the_rules_and_tries_them_out(command: list[str | Path]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        why = "no promtool is installed here (Debian: apt install prometheus): no alert was tried"
        if os.environ.get("PGSLUICE_REQUIRE_PROMTOOL", "0") not in ("", "0"):
            pytest.fail(why)
        pytest.skip(why)
    done = subprocess.run([promtool, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
