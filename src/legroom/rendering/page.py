"""A page of its own: one file, no script, nothing loaded; what every page of legroom's looks like.

Drawings stretch to the width there is, while their labels are text of the page beside them: inside the drawing they
would shrink with it and be unreadable on a phone. Colours follow the reader's choice of light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2430;--soft:#5a6572;--line:#d9dee4;--card:#f5f7f9;
--trainer:#2f6fb3;--workers:#58a55c;--others:#b08a3e;--gpu:#8457b0;--limit:#c43d3d;
--leak:#c43d3d;--growing:#9a6b00;--ok:#2c7a3f}
@media(prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6eaef;--soft:#9aa5b1;--line:#343c46;--card:#1c2229;
--trainer:#6aa9ea;--workers:#7cc98a;--others:#d3b066;--gpu:#b795e0;--limit:#ff7b72;
--leak:#ff7b72;--growing:#e3b341;--ok:#6fcf85}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.25rem;margin:.2rem 0 .8rem;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:1.6rem 0 .5rem}
.verdict{display:inline-block;padding:.1rem .6rem;border-radius:1rem;border:2px solid currentColor;font-weight:600}
.leak{color:var(--leak)}.growing{color:var(--growing)}.ok{color:var(--ok)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.8rem 0}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
.chart{position:relative;margin:0 0 2.2rem 4.6rem;height:18rem;
border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.chart svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.chart span{position:absolute;font-size:.8rem;color:var(--soft);white-space:nowrap}
.chart .y{right:100%;margin-right:.4rem;transform:translateY(-50%)}
.chart .x{top:100%;margin-top:.2rem;transform:translateX(-50%)}
.chart .x:last-of-type{transform:translateX(-100%)}
.chart .mark{color:var(--limit);right:.3rem;background:var(--paper);padding:0 .2rem;border-radius:.2rem}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.4rem 0 .8rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:.15rem;margin-right:.4rem}
.grid{stroke:var(--line)}
.cap{stroke:var(--limit);stroke-dasharray:6 4;fill:none}
path,line{vector-effect:non-scaling-stroke;stroke-width:1.5}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
.said{background:var(--card);border-radius:.5rem;padding:.8rem 1rem}
.said p{margin:.3rem 0}
footer{margin-top:2rem;color:var(--soft);font-size:.85rem}
@media(max-width:30rem){.chart{margin-left:3.9rem;height:14rem}.chart .minor{display:none}
dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .5rem}}
"""


def whole_page(title: str, body: Iterable[str], *, style: str = "") -> str:
    """Return the page; `style` is added to the common one."""
    inside = "\n".join(body)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>\n<body>\n{inside}\n</body></html>\n"
    )


def figures(rows: Iterable[tuple[str, str | None]]) -> str:
    """Return names with their texts, those without a text left out."""
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows if text) + "</dl>"


def legend(colours: Mapping[str, str]) -> str:
    """Return what the colours of a drawing mean: a CSS colour by name."""
    items = (f'<li><i style="background:{colour}"></i>{escape(name)}</li>' for name, colour in colours.items())
    return f'<ul class="legend">{"".join(items)}</ul>'
