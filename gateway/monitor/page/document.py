"""Document and sections of the status page.

With JavaScript, the sections are fetched and replaced every two seconds; the form between them is
not. Nothing is loaded from elsewhere: no fonts, no libraries.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.core.display import as_html as escape
from gateway.monitor.page.selection import Selection
from gateway.monitor.page.style import ICON, STYLE
from gateway.monitor.page.tables import search_field, table_rows
from gateway.monitor.page.texts import ago, date_time, duration, size
from gateway.monitor.watch import Sample

__all__ = ["SECURITY", "fragment", "page"]

SCRIPT: Final = """
const pulse = document.querySelector("#pulse");
async function refresh() {
  try {
    const answer = await fetch("fragment" + location.search, {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const fresh = document.createElement("template");
    fresh.innerHTML = await answer.text();
    for (const section of fresh.content.querySelectorAll("section[id]")) {
      const old = document.getElementById(section.id);
      if (old.querySelector("details[open]"))
        section.querySelector("details")?.setAttribute("open", "");
      if (old.innerHTML !== section.innerHTML) old.replaceWith(section);
    }
    pulse.textContent = "live"; pulse.className = "good";
  } catch (error) {
    pulse.textContent = "no answer since " + new Date().toLocaleTimeString();
    pulse.className = "bad";
  }
  setTimeout(refresh, 2000);
}
setTimeout(refresh, 2000);
"""
_HASH: Final = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
SECURITY: Final = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy that allows only this script, this style and this server."""

_PHASES: Final = {
    "starting": ("wait", "starting"),
    "standby": ("good", "standing by"),
    "streaming": ("good", "streaming"),
    "retrying": ("bad", "retrying after an error"),
    "stopped": ("wait", "stopped"),
}
_PROBLEMS: Final = (5, 50)
"""Number of problems shown at once, and with those that are folded away."""
_WARNINGS: Final = (3, 10)
"""Likewise of warnings."""
_GAP_S: Final = 30.0
"""Seconds between samples from which on the line of the lag is interrupted."""
_HOUR_S: Final = 3_600


def page(
    status: Mapping[str, Any],
    history: Sequence[Sample],
    selection: Selection = Selection(),  # noqa: B008 - frozen
) -> str:
    """Return the whole document.

    Args:
        status: Content of ``/status``.
        history: Samples of the last hour, oldest first.
        selection: Tables to show.
    """
    name = escape(str(status["gateway"]["name"]))
    shown_at = time.strftime("%H:%M:%S UTC", time.gmtime())
    above, below = _sections(status, history, selection)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} - pgsluice</title>
<link rel="icon" href="{ICON}">
<noscript><meta http-equiv="refresh" content="30"></noscript>
<style>{STYLE}</style>
</head>
<body>
<header><h1>{name}</h1><span class="quiet">{_program(status["gateway"])}</span>
<small id="pulse" class="quiet">as of {shown_at}</small></header>
<main>{above}
{search_field(selection)}
{below}</main>
<p class="quiet"><small><a href="status">status as JSON</a> &middot; <a href="metrics">metrics</a>
&middot; <a href="healthz">liveness</a> &middot; <a href="readyz">readiness</a></small></p>
<script>{SCRIPT}</script>
</body>
</html>
"""


def fragment(
    status: Mapping[str, Any],
    history: Sequence[Sample],
    selection: Selection = Selection(),  # noqa: B008 - frozen
) -> str:
    """Return the sections that change; arguments as for `page`."""
    return "\n".join(_sections(status, history, selection))


def _sections(
    status: Mapping[str, Any], history: Sequence[Sample], selection: Selection
) -> tuple[str, str]:
    """Return the sections above and below the form."""
    now = time.time()
    above = [
        _section("summary", [*_summary(status, now), *_problems(status.get("problems", ()))]),
        _section("log", _log(status["log"])),
        _section("path", [*_path(status, history), *_lag(history)]),
    ]
    return "\n".join(above), _section("tables", table_rows(status, selection, now))


def _section(name: str, parts: Iterator[str] | Sequence[str]) -> str:
    return f'<section id="{name}">{"".join(parts)}</section>'


def _program(gateway: Mapping[str, Any]) -> str:
    text = f"pgsluice gateway {gateway.get('version', '')}"
    at = gateway.get("started_at")
    return escape(text if at is None else f"{text}, started {date_time(at)}")


def _summary(status: Mapping[str, Any], now: float) -> Iterator[str]:
    kind, text = _PHASES[status["gateway"]["phase"]]
    problems = status.get("problems", ())
    if kind == "good" and any(problem["severity"] == "act" for problem in problems):
        kind, text = "bad", f"{text}, but there is something to do"
    elif kind == "good" and status.get("lagging"):
        kind, text = "wait", f"{text}, lag above the limit"
    elif kind == "good" and status.get("away"):
        verb = "does" if len(status["away"]) == 1 else "do"
        kind, text = "wait", f"{text}, but {' and '.join(status['away'])} {verb} not answer"
    facts = []
    if (lag := status["gateway"]["lag_seconds"]) is not None:
        facts.append(f"{duration(lag)} behind the source")
    if (at := status.get("last_change")) is not None:
        facts.append(f"last change {ago(at, now)}")
    if (at := status["gateway"].get("started_at")) is not None:
        facts.append(f"up for {duration(max(0.0, now - at))}")
    after = "".join(f", {fact}" for fact in facts)
    yield f'<p role="status"><strong class="{kind}">{escape(text)}</strong>{after}</p>'


def _problems(problems: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from _folded([_problem(one) for one in problems[: _PROBLEMS[1]]], _PROBLEMS[0])
    left = len(problems) - _PROBLEMS[1]
    if left > 0:
        yield f'<p>{left:,} more: <a href="?attention=1">tables that need attention</a></p>'


def _paragraphs(hint: str) -> str:
    """Return a hint with its statements, each of which has a line of its own."""
    return "".join(f"<p>{escape(line)}</p>" for line in hint.split("\n") if line)


def _problem(problem: Mapping[str, Any]) -> str:
    act = problem["severity"] == "act"
    hint = _paragraphs(problem["hint"] or "")
    kind, what = ("urgent", "to do") if act else ("", "for now")
    return f'<li class="{kind}"><strong>{what}:</strong> {escape(problem["message"])}{hint}</li>'


def _folded(items: Sequence[str], most: int) -> Iterator[str]:
    """Yield a list of which only the first `most` items are open."""
    if items:
        yield f'<ul class="problems">{"".join(items[:most])}</ul>'
    if len(items) > most:
        yield f"<details><summary>{len(items) - most} more</summary>"
        yield f'<ul class="problems">{"".join(items[most:])}</ul></details>'


def _path(status: Mapping[str, Any], history: Sequence[Sample]) -> Iterator[str]:
    slot = status.get("slot", {})
    tables = status.get("tables", ())
    received, made = _rate(history, "frames"), _rate(history, "records")
    left = slot.get("left_bytes")
    yield "<h2>From slot to topics</h2>"
    yield '<ol class="path">'
    yield _part(
        "PostgreSQL",
        {
            "slot": slot.get("name", "unknown"),
            "at": status.get("server_lsn") or "unknown",
            "retained WAL": size(slot.get("retained_bytes")),
            "until the slot is invalidated": "no limit" if left is None else size(max(0, left)),
        },
    )
    yield f'<li class="flow">{received} messages/s</li>'
    yield _part(
        "gateway",
        {
            "watermark": status.get("watermark") or "none",
            "behind": size(status.get("behind_bytes")),
            "records": f"{status['gateway']['records']:,}",
        },
    )
    yield f'<li class="flow">{made} records/s</li>'
    yield _part(
        "Kafka",
        {
            "subscriptions": f"{len({table['subscription'] for table in tables}):,}",
            "tables": f"{len(tables):,}",
            "ready": f"{sum(table['state'] == 'ready' for table in tables):,}",
        },
    )
    yield "</ol>"


def _part(name: str, facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f'<li class="part"><b>{escape(name)}</b><dl>{rows}</dl></li>'


def _rate(history: Sequence[Sample], what: str) -> str:
    """Return the rate between the last two samples."""
    if len(history) < 2:
        return "..."
    before, now = history[-2], history[-1]
    rate = (getattr(now, what) - getattr(before, what)) / max(0.001, now.at - before.at)
    return f"{max(0.0, rate):,.0f}"


def _lag(history: Sequence[Sample]) -> Iterator[str]:
    """Yield a line of the lag over the last hour, interrupted while the lag was unknown."""
    known = [(sample.at, sample.lag_s) for sample in history if sample.lag_s is not None]
    if len(known) < 2:
        return
    last = known[-1][0]
    known = [(at, lag) for at, lag in known if last - _HOUR_S <= at <= last]
    most = max(lag for _, lag in known)
    top = max(1.0, most)
    lines: list[list[str]] = []
    before = None
    for at, lag in known:
        if before is None or at - before > _GAP_S:
            lines.append([])
        before = at
        lines[-1].append(f"{600 - (last - at) / 6:.1f},{100 - 96 * lag / top:.1f}")
    label = f"at most {duration(most)}, now {duration(known[-1][1])}"
    yield f"<h2>Lag over the last hour</h2><figure><figcaption><small>{label}</small></figcaption>"
    drawn = "".join(f'<polyline points="{" ".join(points)}"/>' for points in lines)
    yield (
        f'<svg viewBox="0 0 600 104" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<line x1="0" y1="4" x2="600" y2="4"/><line x1="0" y1="100" x2="600" y2="100"/>{drawn}'
        f'</svg><div class="axis"><span>an hour ago</span><span>upper line: {duration(top)}</span>'
        "<span>now</span></div></figure>"
    )


def _log(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not entries:
        return
    yield "<h2>Latest warnings and errors</h2>"
    yield from _folded([_entry(one) for one in entries[: _WARNINGS[1]]], _WARNINGS[0])


def _entry(entry: Mapping[str, Any]) -> str:
    fields = dict(entry["fields"])
    hint = fields.pop("hint", "")
    kind = "urgent" if entry["level"] == "error" else ""
    when = time.strftime("%H:%M:%S UTC", time.gmtime(entry["at"]))
    shown = " ".join(f"{escape(k)}={escape(v)}" for k, v in fields.items())
    text = f"{when} <strong>{escape(entry['message'])}</strong> <small>{shown}</small>"
    return f'<li class="{kind}">{text}{_paragraphs(hint)}</li>'
