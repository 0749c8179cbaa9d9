"""Writes a device's conformance report (`python -m xgrad conform`) as HTML: a part for notebooks, or a whole page."""

from html import escape

from . import table
from .records import Check
from .results import Results

_STYLE = """
.conform { --line: #d0d7de; --right: #1a7f37; --refused: #9a6700; --failed: #8250df; --wrong: #cf222e;
  font: 14px/1.4 system-ui, sans-serif; }
.conform h1 { font-size: 1.3em; } .conform p { margin: .4em 0; }
.conform table { border-collapse: collapse; }
.conform td, .conform th { border-bottom: 1px solid var(--line); padding: 2px 12px; text-align: right; }
.conform td:first-child, .conform th:first-child { text-align: left; }
.conform th.group { padding-top: 1em; }
.conform .right { color: var(--right); } .conform .refused { color: var(--refused); }
.conform .failed { color: var(--failed); font-weight: 600; } .conform .wrong { color: var(--wrong); font-weight: 600; }
.conform .compiles { color: var(--right); } .conform .gathers, .conform .slow { color: var(--refused); }
.conform .ends { color: var(--wrong); font-weight: 600; }
.conform .reasons td { text-align: left; vertical-align: top; }
@media (prefers-color-scheme: dark) { .conform { --line: #30363d; --right: #3fb950; --refused: #d29922;
  --failed: #a371f7; --wrong: #f85149; } }
"""
_PAGE_STYLE = """
body { margin: 2em auto; max-width: 72em; padding: 0 1em; background: #fff; color: #1f2328; }
.conform thead th { position: sticky; top: 0; background: #fff; }
@media (prefers-color-scheme: dark) { body, .conform thead th { background: #0d1117; color: #e6edf3; } }
"""


def fragment(report: Results) -> str:
    """Return the report as one element with its style."""
    columns = report.facts["dtypes"]
    parts = [f"<style>{_STYLE}</style><div class='conform'>"]
    parts += [f"<p>{escape(line)}</p>" for line in table.head(report)]
    parts.append(f"<p><strong>{escape(report.summary)}</strong></p>")
    found = list(table.reasons(report))
    if found:
        parts.append("<table class='reasons'>")
        for state, name, dtypes, why in found:
            cells = "".join(f"<td>{escape(text)}</td>" for text in (name, dtypes, why))
            parts.append(f"<tr><td class='{state}'>{state}</td>{cells}</tr>")
        parts.append("</table>")
    parts.append(f"<p>{escape(table.legend(report))}</p><table><thead><tr><th></th>")
    parts += [f"<th>{name}</th>" for name in columns]
    parts.append("</tr></thead>")
    group = None
    for row in report.rows:
        if row.group != group:
            group = row.group
            parts.append(f"<tr><th class='group' colspan='{len(columns) + 1}'>{escape(group)}</th></tr>")
        parts.append(f"<tr><td>{escape(row.name)}</td>")
        for name in columns:
            cell = row.cells.get(name)
            if cell is None:
                parts.append(f"<td>{table.ABSENT}</td>")
                continue
            checks = "&#10;".join(escape(_told(check), True) for check in cell.checks)
            parts.append(f"<td class='{cell.state}' title='{checks}'>{escape(table.shown(cell))}</td>")
        parts.append("</tr>")
    parts.append("</table></div>")
    return "".join(parts)


def _told(check: Check) -> str:
    """Return a check as a line of a cell's tooltip."""
    error = "" if check.error is None else f", {table.roundings(check.error)} roundings"
    return f"{check.name}: {check.state}{error}"


def whole(report: Results) -> str:
    """Return a page that needs no other file."""
    title = escape(f"xgrad on {report.facts['device']}")
    counts = ", ".join(f"{report.counts[state]} {state}" for state in report.states)
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<meta name='viewport' content='width=device-width'><meta name='description' content='{counts}'>"
        f"<style>{_PAGE_STYLE}</style></head><body><h1>{title}</h1>{fragment(report)}</body></html>\n"
    )
