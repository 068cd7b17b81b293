"""Status page at ``/``: the same status as everywhere else, for people. Pure.

The page is complete without JavaScript; with it, the changing part is fetched every two seconds.
Nothing is loaded from elsewhere: no fonts, no libraries.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.display import as_html as escape
from gateway.monitor.watch import Sample

__all__ = ["SECURITY", "fragment", "page"]

_SCRIPT: Final = """
const main = document.querySelector("main"), pulse = document.querySelector("#pulse");
async function refresh() {
  try {
    const answer = await fetch("fragment", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    main.innerHTML = await answer.text();
    pulse.textContent = "live"; pulse.className = "good";
  } catch (error) {
    pulse.textContent = "no answer since " + new Date().toLocaleTimeString();
    pulse.className = "bad";
  }
  setTimeout(refresh, 2000);
}
setTimeout(refresh, 2000);
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
SECURITY: Final = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy that allows only this script, this style and this server."""

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #18794e; --bad: #c62a2f;
  --wait: #96660b; --mark: #2f6feb; }
@media (prefers-color-scheme: dark) { :root { --good: #4cc38a; --bad: #ff8589; --wait: #f1a10d;
  --mark: #79a8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .5rem; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
.good { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
.quiet { opacity: .75; } small { font-size: .85rem; }
.path { display: flex; align-items: stretch; gap: .4rem; list-style: none; padding: 0; margin: 0; }
.path .part { flex: 1 1 0; border: 1px solid var(--line); border-radius: .5rem;
  padding: .6rem .8rem; background: var(--soft); min-width: 0; overflow-wrap: anywhere; }
.path .flow { flex: 0 0 auto; align-self: center; text-align: center; font-size: .85rem;
  font-variant-numeric: tabular-nums; }
.path .flow::after { content: "\\2192"; display: block; font-size: 1.5rem; line-height: 1; }
.path b { display: block; }
dl { display: grid; grid-template-columns: auto 1fr; gap: 0 .6rem; margin: .3rem 0 0;
  font-size: .9rem; }
dt { opacity: .75; } dd { margin: 0; font-variant-numeric: tabular-nums; text-align: right; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; vertical-align: top; }
th, td.number { white-space: nowrap; } td small { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.problems { list-style: none; padding: 0; margin: .8rem 0 0; }
.problems li { border-left: .3rem solid var(--wait); background: var(--soft); margin: .4rem 0;
  padding: .5rem .8rem; overflow-wrap: anywhere; }
.problems li.urgent { border-color: var(--bad); }
.problems p { margin: .2rem 0 0; }
figure { margin: 0; } svg { width: 100%; height: 9rem; display: block; }
svg polyline { fill: none; stroke: var(--mark); stroke-width: 1.5; }
svg line { stroke: var(--line); } svg * { vector-effect: non-scaling-stroke; }
@media (max-width: 44rem) {
  .path { flex-direction: column; } .path .flow::after { content: "\\2193"; }
  thead { position: absolute; left: -200vw; }
  tr { display: block; border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0;
    padding: .3rem .2rem; }
  td, td.number { display: flex; justify-content: space-between; gap: 1rem; border: 0;
    text-align: right; white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-label); opacity: .75; text-align: left; flex: 0 0 auto; }
}
"""
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath "
    "d='M2 3h12L9 9v5l-2-1V9z' fill='%232f6feb'/%3E%3C/svg%3E"
)
_PHASES: Final = {
    "starting": ("wait", "starting"),
    "standby": ("good", "standing by"),
    "streaming": ("good", "streaming"),
    "retrying": ("bad", "retrying after an error"),
    "stopped": ("wait", "stopped"),
}


def page(status: Mapping[str, Any], history: Sequence[Sample]) -> str:
    """Return the whole document; `status` is the content of ``/status``."""
    name = escape(str(status["gateway"]["name"]))
    now = time.strftime("%H:%M:%S UTC", time.gmtime())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} - pgsluice</title>
<link rel="icon" href="{_ICON}">
<noscript><meta http-equiv="refresh" content="10"></noscript>
<style>{_STYLE}</style>
</head>
<body>
<header><h1>{name}</h1><span class="quiet">pgsluice gateway</span>
<small id="pulse" class="quiet">as of {now}</small></header>
<main>{fragment(status, history)}</main>
<p class="quiet"><small><a href="status">status as JSON</a> &middot; <a href="metrics">metrics</a>
&middot; <a href="healthz">liveness</a> &middot; <a href="readyz">readiness</a></small></p>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def fragment(status: Mapping[str, Any], history: Sequence[Sample]) -> str:
    """Return the part of the page that changes."""
    return "\n".join(
        [
            *_summary(status),
            *_problems(status.get("problems", ())),
            *_path(status, history),
            *_lag(history),
            *_tables(status),
            *_log(status["log"]),
        ]
    )


def _summary(status: Mapping[str, Any]) -> Iterator[str]:
    kind, text = _PHASES[status["gateway"]["phase"]]
    problems = status.get("problems", ())
    if kind == "good" and any(problem["severity"] == "act" for problem in problems):
        kind, text = "bad", f"{text}, but there is something to do"
    elif kind == "good" and status.get("lagging"):
        kind, text = "wait", f"{text}, lag above the limit"
    elif kind == "good" and status.get("away"):
        verb = "does" if len(status["away"]) == 1 else "do"
        kind, text = "wait", f"{text}, but {' and '.join(status['away'])} {verb} not answer"
    lag = status["gateway"]["lag_seconds"]
    lag_text = "" if lag is None else f", {_duration(lag)} behind the source"
    yield f'<p role="status"><strong class="{kind}">{text}</strong>{lag_text}</p>'


def _problems(problems: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not problems:
        return
    yield '<ul class="problems">'
    for problem in problems:
        act = problem["severity"] == "act"
        hint = f"<p>{escape(problem['hint'])}</p>" if problem["hint"] else ""
        kind, what = ("urgent", "to do") if act else ("", "for now")
        yield f'<li class="{kind}"><strong>{what}:</strong> {escape(problem["message"])}{hint}</li>'
    yield "</ul>"


def _path(status: Mapping[str, Any], history: Sequence[Sample]) -> Iterator[str]:
    slot = status.get("slot", {})
    tables = status.get("tables", ())
    received, made = _rate(history, "frames"), _rate(history, "records")
    left = slot.get("left_bytes")
    subscriptions = len({table["subscription"] for table in tables})
    yield "<h2>From slot to topics</h2>"
    yield '<ol class="path">'
    yield _part(
        "PostgreSQL",
        {
            "slot": slot.get("name", "unknown"),
            "at": status.get("server_lsn") or "unknown",
            "retained WAL": _size(slot.get("retained_bytes")),
            "until the slot is invalidated": "no limit" if left is None else _size(max(0, left)),
        },
    )
    yield f'<li class="flow">{received} messages/s</li>'
    yield _part(
        "gateway",
        {
            "watermark": status.get("watermark") or "none",
            "behind": _size(status.get("behind_bytes")),
            "records": f"{status['gateway']['records']:,}",
        },
    )
    yield f'<li class="flow">{made} records/s</li>'
    ready = sum(table["state"] == "ready" for table in tables)
    yield _part(
        "Kafka",
        {
            "subscriptions": str(subscriptions),
            "tables": str(len(tables)),
            "ready": str(ready),
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
    known = [(sample.at, sample.lag_s) for sample in history if sample.lag_s is not None]
    if len(known) < 2:
        return
    last = known[-1][0]
    most = max(lag for _, lag in known)
    top = max(1.0, most)
    points = " ".join(
        f"{600 - (last - at) / 6:.1f},{100 - 96 * lag / top:.1f}"
        for at, lag in known
        if at > last - 3_600
    )
    label = f"at most {_duration(most)}, now {_duration(known[-1][1])}"
    yield f"<h2>Lag over the last hour</h2><figure><figcaption><small>{label}</small></figcaption>"
    yield (
        f'<svg viewBox="0 0 600 104" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<line x1="0" y1="100" x2="600" y2="100"/><polyline points="{points}"/></svg></figure>'
    )


@dataclass(slots=True)
class _Counts:
    """Row counts of one subscription and table."""

    published: int = 0
    filtered: int = 0


_COLUMNS: Final = (
    ("subscription", ""),
    ("table", ""),
    ("state", ""),
    ("changes", "number"),
    ("filtered", "number"),
    ("copied", "number"),
    ("filter by", ""),
)


def _tables(status: Mapping[str, Any]) -> Iterator[str]:
    tables = status.get("tables", ())
    if not tables:
        return
    counts: dict[tuple[str, str], _Counts] = {}
    for row in status.get("rows", ()):
        of = counts.setdefault((row["subscription"], row["table"]), _Counts())
        if row["operation"] != "copy":
            of.published += row["rows"]
    for row in status.get("filtered", ()):
        counts.setdefault((row["subscription"], row["table"]), _Counts()).filtered += row["rows"]
    who = {(e["subscription"], e["table"]): e["by"] for e in status.get("filters", ())}
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in _COLUMNS)
    yield "<h2>Subscriptions and tables</h2>"
    yield f"<table><thead><tr>{head}</tr></thead><tbody>"
    for table in tables:
        key = (table["subscription"], table["table"])
        yield _table_row(table, counts.get(key, _Counts()), who.get(key, ""))
    yield "</tbody></table>"


def _table_row(table: Mapping[str, Any], counts: _Counts, who: str) -> str:
    looked_at = counts.published + counts.filtered
    share = f" ({counts.filtered / looked_at:.0%})" if looked_at else ""
    copied = f"{table['rows_published']:,}"
    if table["state"] == "copying":
        about = f" of about {table['estimate']:,}" if table["estimate"] else ""
        copied += f" ({table['rows_read']:,} read{about})"
    state = escape(table["state"])
    kind = {"ready": "good", "held": "bad", "missing": "bad"}.get(table["state"], "wait")
    reason = f"<br><small>{escape(table['reason'])}</small>" if table["reason"] else ""
    cells = (
        escape(table["subscription"]),
        escape(table["table"]),
        f'<span><span class="{kind}">{state}</span>{reason}</span>',
        f"{counts.published:,}",
        f"{counts.filtered:,}{share}",
        copied,
        escape(who),
    )
    row = "".join(
        f'<td class="{css}" data-label="{name}">{cell}</td>'
        for (name, css), cell in zip(_COLUMNS, cells, strict=True)
    )
    return f"<tr>{row}</tr>"


def _log(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h2>Latest warnings and errors</h2>"
    if not entries:
        yield '<p class="quiet">none</p>'
        return
    yield '<ul class="problems">'
    for entry in entries[:10]:
        fields = dict(entry["fields"])
        hint = fields.pop("hint", "")
        kind = "urgent" if entry["level"] == "error" else ""
        when = time.strftime("%H:%M:%S UTC", time.gmtime(entry["at"]))
        shown = " ".join(f"{escape(k)}={escape(v)}" for k, v in fields.items())
        text = f"{when} <strong>{escape(entry['message'])}</strong> <small>{shown}</small>"
        hint_html = f"<p>{escape(hint)}</p>" if hint else ""
        yield f'<li class="{kind}">{text}{hint_html}</li>'
    yield "</ul>"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    shown = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if shown < 1_024:
            return f"{shown:.0f} {unit}" if unit == "B" else f"{shown:.1f} {unit}"
        shown /= 1_024
    return f"{shown:.1f} TiB"
