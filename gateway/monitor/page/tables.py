"""Tables of the status page: one portion of those that are selected, with links to the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.display import as_html as escape
from gateway.monitor.page.selection import LONGEST, PORTION, Selection, searched
from gateway.monitor.page.texts import ago, moves

__all__ = ["search_field", "table_rows"]

_COLUMNS: Final = (
    ("subscription", "subscription"),
    ("table", "name"),
    ("state", "state"),
    ("changes", "number main"),
    ("filtered", "number"),
    ("copied", "number"),
    ("last change", "number"),
    ("filter by", ""),
    ("topic", "topic"),
)


@dataclass(slots=True)
class _Counts:
    """Row counts of one subscription and table."""

    published: int = 0
    filtered: int = 0


def search_field(selection: Selection) -> str:
    """Return the form that selects tables; it is not replaced while somebody types."""
    checked = " checked" if selection.attention else ""
    return (
        "<h2>Subscriptions and tables</h2>"
        f'<form method="get" role="search"><input type="search" name="q" maxlength="{LONGEST}" '
        f'value="{escape(selection.search)}" placeholder="subscription, table or topic" '
        'aria-label="subscription, table or topic">'
        f'<label><input type="checkbox" name="attention" value="1"{checked}> only those that '
        'need attention</label><button type="submit">Show</button></form>'
    )


def table_rows(status: Mapping[str, Any], selection: Selection, now: float) -> Iterator[str]:
    """Yield the tables of the portion.

    Args:
        status: Content of ``/status``.
        selection: Tables to show.
        now: Current time, in seconds since 1970.
    """
    tables = status.get("tables", ())
    found = selection.among(tables)
    start, end = selection.portion(found)
    yield _counts_line(tables, found, selection)
    if not found:
        return
    of_tables = {(table["subscription"], table["table"]) for table in found[start:end]}
    counts = _counts(status, of_tables)
    who = {(e["subscription"], e["table"]): e["by"] for e in status.get("filters", ())}
    changed = {(e["subscription"], e["table"]): e["at"] for e in status.get("changed", ())}
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in _COLUMNS)
    kind = "one" if len(found) == 1 else "many"
    yield f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>'
    for table in found[start:end]:
        key = (table["subscription"], table["table"])
        at = changed.get(key)
        last = "" if at is None else ago(at, now)
        yield _row(table, counts[key], last, who.get(key, ""), selection, labelled=kind == "one")
    yield "</tbody></table>"
    yield _links(len(found), start, end, selection)


def _counts_line(
    tables: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], selection: Selection
) -> str:
    ready = sum(table["state"] == "ready" for table in tables)
    text = f"{len(tables):,} tables, {len(tables) - ready:,} not ready"
    if selection.search or selection.attention:
        text += f'; {len(found):,} shown, <a href="?">show all</a>'
    return f'<p class="quiet">{text}</p>'


def _counts(
    status: Mapping[str, Any], of_tables: set[tuple[str, str]]
) -> dict[tuple[str, str], _Counts]:
    counts = {key: _Counts() for key in of_tables}
    for row in status.get("rows", ()):
        of = counts.get((row["subscription"], row["table"]))
        if of is not None and row["operation"] != "copy":
            of.published += row["rows"]
    for row in status.get("filtered", ()):
        of = counts.get((row["subscription"], row["table"]))
        if of is not None:
            of.filtered += row["rows"]
    return counts


def _row(
    table: Mapping[str, Any],
    counts: _Counts,
    last: str,
    who: str,
    selection: Selection,
    *,
    labelled: bool,
) -> str:
    """Return a row; `labelled` if its cells name their columns, for the card on a phone."""
    looked_at = counts.published + counts.filtered
    share = f" ({counts.filtered / looked_at:.0%})" if looked_at else ""
    copied = f"{table['rows_published']:,}"
    if table["state"] == "copying":
        about = f" of about {table['estimate']:,}" if table["estimate"] else ""
        copied += f"<br><small>{table['rows_read']:,} read{about}</small>"
    kind = {"ready": "good", "held": "bad", "missing": "bad"}.get(table["state"], "wait")
    reason = table["reason"] or _moves(table)
    why = f'<small class="reason">{escape(reason)}</small>'
    only = selection.query(search=searched(table))
    cells = (
        _breakable(table["subscription"]),
        f'<a href="{escape(only)}">{_breakable(table["table"])}</a>',
        f'<span><span class="{kind}">{escape(table["state"])}</span>{why if reason else ""}</span>',
        f"{counts.published:,}",
        f"{counts.filtered:,}{share}",
        copied,
        last,
        escape(who),
        _breakable(table.get("topic") or ""),
    )
    return "<tr>" + "".join(map(_cell, _COLUMNS, cells, [labelled] * len(cells))) + "</tr>"


def _breakable(name: str) -> str:
    """Return a name that is wrapped after its points and underscores, not within its words."""
    return re.sub(r"(?<=[._])(?=.)", "<wbr>", escape(name))


def _moves(table: Mapping[str, Any]) -> str:
    """Return that rows of a table move, or an empty text."""
    if not (unsettled := table.get("unsettled")):
        return ""
    return moves(unsettled, table["moving_since"], table["moved_rows"])


def _cell(column: tuple[str, str], text: str, labelled: bool) -> str:
    name, css = column
    attributes = f' class="{css}"' if css else ""
    if labelled:
        attributes += f' data-label="{name}"'
    return f"<td{attributes}>{text}</td>"


def _links(number: int, start: int, end: int, selection: Selection) -> str:
    if number <= PORTION:
        return ""
    links = [f"<span>{start + 1:,} to {end:,} of {number:,}</span>"]
    if start:
        before = escape(selection.query(start=max(0, start - PORTION)))
        links.append(f'<a href="{before}" rel="prev">previous {PORTION}</a>')
    if end < number:
        links.append(f'<a href="{escape(selection.query(start=end))}" rel="next">next</a>')
    return f'<nav aria-label="portions">{"".join(links)}</nav>'
