"""Style of the status page: one column on a phone, where a table is one line."""

from __future__ import annotations

from typing import Final

__all__ = ["ICON", "STYLE"]

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #18794e; --bad: #c62a2f;
  --wait: #96660b; --mark: #2f6feb; }
@media (prefers-color-scheme: dark) { :root { --good: #4cc38a; --bad: #ff8589; --wait: #f1a10d;
  --mark: #79a8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 82rem; font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .5rem; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1rem; align-items: baseline; }
.good { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
.quiet { opacity: .75; } small { font-size: .85rem; } a { color: var(--mark); }
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
form { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; }
input, button { font: inherit; padding: .25rem .6rem; border: 1px solid var(--line);
  border-radius: .4rem; } input[type=search] { flex: 0 1 22rem; min-width: 0; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; vertical-align: top; }
th, td.number { white-space: nowrap; overflow-wrap: normal; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.state { overflow-wrap: break-word; } td.name, td.topic { min-width: 9rem; }
td a { color: inherit; text-decoration-color: var(--line); }
.problems { list-style: none; padding: 0; margin: .8rem 0 0; }
.problems li { border-left: .3rem solid var(--wait); background: var(--soft); margin: .4rem 0;
  padding: .5rem .8rem; overflow-wrap: anywhere; }
.problems li.urgent { border-color: var(--bad); }
.problems p { margin: .2rem 0 0; }
summary { padding: .4rem 0; cursor: pointer; }
figure { margin: 0; } svg { width: 100%; height: 9rem; display: block; }
svg polyline { fill: none; stroke: var(--mark); stroke-width: 1.5; }
svg line { stroke: var(--line); } svg * { vector-effect: non-scaling-stroke; }
.axis { display: flex; justify-content: space-between; font-size: .85rem; opacity: .75; }
.reason { display: block; }
@media (min-width: 80rem) { .reason { min-width: 11rem; } }
@media (max-width: 48rem) {
  wbr { display: none; }
  .path { flex-direction: column; } .path .flow::after { content: "\\2193"; }
  form label, input[type=search] { flex: 1 1 100%; }
  input[type=search], button, nav a { min-height: 2.4rem; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody { display: block; }
  td, td.number { border: 0; padding: .1rem .2rem; }
  .many tr { display: flex; gap: .6rem; padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .many td { display: none; }
  .many td.name { display: block; flex: 1 1 0; min-width: 0; overflow: hidden;
    text-overflow: ellipsis; white-space: nowrap; }
  .many td.subscription { display: block; flex: 0 1 auto; max-width: 25%; min-width: 0;
    overflow: hidden; text-overflow: ellipsis; white-space: nowrap; opacity: .75; }
  .many td.state, .many td.main { display: block; flex: 0 0 auto; white-space: nowrap; }
  .many td.state .reason { display: none; }
  .one tr, .one td, .one td.number { display: flex; }
  .one tr { flex-direction: column; border: 1px solid var(--line); border-radius: .5rem; }
  .one td, .one td.number { justify-content: space-between; gap: 1rem; text-align: right;
    white-space: normal; overflow-wrap: anywhere; }
  .one td::before { content: attr(data-label); opacity: .75; text-align: left; flex: 0 0 auto; }
}
"""
ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath "
    "d='M2 3h12L9 9v5l-2-1V9z' fill='%232f6feb'/%3E%3C/svg%3E"
)
