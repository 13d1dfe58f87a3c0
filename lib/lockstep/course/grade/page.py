"""One HTML page: nothing remote, no script, readable in light and dark; what students wrote is always escaped.

Floor 4, room `course`.
"""

from __future__ import annotations

import html
import re

# Okabe-Ito hues, darkened where white text stands on them; a mark and a word say what the colour says.
STYLE = """
:root { color-scheme: light dark; --text: #1d1d1f; --soft: #5c5c66; --back: #ffffff; --card: #f5f5f7; --line: #d5d5dc;
  --code: #e9e9ee; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ececf1; --soft: #a6a6b2; --back: #16161a; --card: #212127; --line: #3b3b45; --code: #2e2e37; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.2rem 1.2rem 4rem; max-width: 46rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { margin: .35rem 0; } .soft { color: var(--soft); } .total { font-size: 2rem; font-weight: 650; margin: .6rem 0 0; }
.card { background: var(--card); border-left: 5px solid var(--edge); border-radius: 4px; padding: .7rem 1rem;
  margin: .6rem 0; overflow-wrap: anywhere; }
.head { display: flex; gap: .6rem; align-items: baseline; flex-wrap: wrap; } .head strong { flex: 1 1 auto; }
.badge { background: var(--badge); color: #fff; border-radius: 3px; padding: 0 .5rem; font-weight: 600;
  white-space: nowrap; font-size: .9rem; }
.points { font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { --edge: #2e8fc4; --badge: #006a9e; } .bad { --edge: #d55e00; --badge: #a84300; }
.open { --edge: #8a8a8a; --badge: #5f5f5f; } .note { --edge: #009e73; --badge: #00684b; }
code, pre { background: var(--code); border-radius: 3px; font: .92em/1.45 ui-monospace, Consolas, monospace; }
code { padding: 0 .25em; -webkit-box-decoration-break: clone; box-decoration-break: clone; } pre { padding: .6rem .8rem; overflow-x: auto; white-space: pre-wrap; margin: .4rem 0; }
.bar { height: .5rem; border-radius: 4px; background: var(--line); overflow: hidden; margin: .5rem 0 0; }
.bar div { height: 100%; background: #2e8fc4; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem; } body.wide { max-width: 80rem; }
@media (max-width: 40rem) { .pair { grid-template-columns: 1fr; } }
@media print { body { max-width: none; } .card { break-inside: avoid; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, body: str, wide: bool = False) -> str:
    """A whole page around `body`, which is HTML already; `title` is escaped."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body{' class=wide' if wide else ''}>\n{body}\n</body>\n</html>\n"
    )


def sentence(text: str) -> str:
    """A text as HTML: escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html.escape(text))


def card(tone: str, mark: str, badge: str, heading: str, points: str, rows: list[str]) -> str:
    """A card; `rows` are HTML already, everything else is escaped here."""
    return (
        f'<div class="card {tone}" role="group"><div class="head"><span class="badge">{mark} {html.escape(badge)}</span>'
        f'<strong>{sentence(heading)}</strong><span class="points">{html.escape(points)}</span></div>{"".join(rows)}</div>'
    )
