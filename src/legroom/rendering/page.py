"""A document as HTML: a page of its own in one file, with no script and nothing loaded, or a part of another page.

Drawings stretch to the width there is, while their labels are text of the page beside them: inside the drawing they
would shrink with it and be unreadable on a phone. Colours follow the reader's choice of light or dark; every text has
at least 4.5 : 1 against what is behind it in both. No element has a style of its own: what differs from one to the
next is an attribute of SVG, so that parts also work in a page whose content security policy allows no inline styles.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape

from legroom.rendering.document import Bars, Curves, Document, Note, Part, Section, Table
from legroom.rendering.drawing import DARK, LIGHT, bars_drawing, curves_drawing

SCOPE = ".legroom"
_LIGHT = (
    "color-scheme:light;--paper:#fff;--ink:#1c2430;--soft:#5a6572;--line:#d9dee4;--card:#f5f7f9;--on:#fff;"
    "--trainer:#2f6fb3;--workers:#37803f;--others:#8a6a1f;--gpu:#7d50a8;--limit:#b93333;--band:#7d50a8;"
    f"--leak:#b93333;--growing:#8a5f00;--ok:#2c7a3f;{LIGHT}"
)
_DARK = (
    "color-scheme:dark;--paper:#14181d;--ink:#e6eaef;--soft:#9aa5b1;--line:#343c46;--card:#1c2229;--on:#14181d;"
    "--trainer:#6aa9ea;--workers:#7cc98a;--others:#d3b066;--gpu:#b795e0;--limit:#ff7b72;--band:#b795e0;"
    f"--leak:#ff7b72;--growing:#e3b341;--ok:#6fcf85;{DARK}"
)
_THEMES = f"""
&{{{_LIGHT}}}
@media(prefers-color-scheme:dark){{&{{{_DARK}}}}}
"""
_RULES = """
&{background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
&,& *{box-sizing:border-box}
& h1{font-size:1.25rem;margin:.2rem 0 .8rem;overflow-wrap:anywhere}
& h2{font-size:1.05rem;margin:1.6rem 0 .5rem}
& h3{font-size:.95rem;margin:1.2rem 0 .4rem;overflow-wrap:anywhere}
& p{margin:.5rem 0;overflow-wrap:anywhere}
& .verdict{display:inline-block;padding:.1rem .6rem;border-radius:1rem;border:2px solid currentColor;font-weight:600}
& .leak,& .bad,& .error,& .changes-learning,& .worse{color:var(--leak)}
& .growing,& .warning,& .slower{color:var(--growing)}
& .ok,& .good,& .free,& .better{color:var(--ok)}
& .strong{font-weight:600}
& .info,& .soft,& .same,& .unknown{color:var(--soft)}
& dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.8rem 0}
& dt{color:var(--soft);font-weight:normal}
& dd{margin:0;overflow-wrap:anywhere}
& .chart{position:relative;margin:.6rem 0 2.4rem 4.6rem;height:18rem;
border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
& .chart svg{position:absolute;inset:0;width:100%;height:100%;max-width:none;overflow:visible}
& .chart text{font-size:13px;fill:var(--soft)}
& .chart text.limit,& .chart text.band{paint-order:stroke;stroke:var(--paper);stroke-width:5px;stroke-linejoin:round}
& .chart text.limit{fill:var(--limit)}
& .chart text.band{fill:var(--band)}
& .chart path,& .chart line{vector-effect:non-scaling-stroke;stroke-width:1.5}
& .chart .curve{fill:none;stroke-width:2}
& .grid{stroke:var(--line)}
& .cap{stroke:var(--limit);stroke-dasharray:6 4;fill:none}
& .expected{stroke:var(--band);stroke-dasharray:2 3}
& .moment{stroke:var(--soft);stroke-dasharray:3 3}
& .moment.retreat{stroke:var(--limit);stroke-dasharray:none}
& .legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.4rem 0 .8rem;font-size:.9rem}
& .legend li{margin:0}
& .legend svg{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;vertical-align:baseline}
& .wide{overflow-x:auto}
& table{border-collapse:collapse;table-layout:auto;margin:0;width:100%;font-size:.95rem;color:inherit}
& tr{background:none}
& th,& td{text-align:left;padding:.25rem 1.1rem .25rem 0;border:0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:break-word}
& td:last-child,& th:last-child{padding-right:0}
& td.n,& th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
& td.long{min-width:14rem}
& tr.part th{padding-top:.8rem;color:var(--soft);font-weight:600}
& code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere;background:none;color:inherit;padding:0}
& ul.findings{list-style:none;padding:0;margin:.6rem 0}
& ul.findings li{margin:.3rem 0;overflow-wrap:anywhere}
& summary{cursor:pointer;margin:.6rem 0}
& footer{margin-top:2rem;color:var(--soft);font-size:.85rem}
& .bars{margin:.4rem 0 1rem}
& .bars .limits{list-style:none;margin:.2rem 0 .5rem;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;
font-size:.9rem;color:var(--limit)}
& .bars .bar{margin:0 0 .7rem}
& .bars .of{display:flex;flex-wrap:wrap;gap:0 .8rem;align-items:baseline;overflow-wrap:anywhere}
& .bars .of b{font-variant-numeric:tabular-nums}
& .bars .of small{color:var(--soft);font-size:.85rem}
& .bars .bar svg{display:block;width:100%;max-width:none;height:38px;overflow:visible}
& .bars .seg rect{stroke:var(--paper);stroke-width:.6}
& .bars .seg:hover rect{filter:brightness(1.12)}
& .bars .seg text{fill:var(--on);font-size:12px;pointer-events:none}
& .bars .cap{stroke-width:2}
@media(max-width:40rem){& .bars .seg text{display:none}
& .stacking thead{display:none}& .stacking tr{display:flex;flex-wrap:wrap;gap:0 1rem;padding:.3rem 0;
border-bottom:1px solid var(--line)}
& .stacking td,& .stacking th{border:0;padding:0}& .stacking td.long{flex:1 0 100%;color:var(--soft)}}
@media(max-width:30rem){& .chart{margin-left:3.9rem;height:14rem}& .chart .minor{display:none}
& dl{grid-template-columns:1fr;gap:0}& dd{margin:0 0 .5rem}
& table{font-size:.85rem}& th,& td{padding-right:.6rem}}
"""
STYLE = f"{_THEMES}{_RULES}".replace("&", SCOPE)
_PAGE = f"""
body{SCOPE}{{margin:0 auto;max-width:60rem;padding:1rem;min-height:100vh}}
"""


_WHOLE = f"{STYLE}{_PAGE}"
# Whatever a name in a report holds: no script, nothing loaded from anywhere, and no style but this one.
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_WHOLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)
_CLASSES = {"bold": "strong", "dim": "soft", "red": "bad", "bold red": "bad", "green": "good", "yellow": "warning",
            "cyan": "info"}  # fmt: skip
_VERDICTS = {"green": "ok", "yellow": "growing", "bold red": "leak"}
_SHORT = 40  # letters: what wraps in a terminal, but is as short as this, needs no line of its own


def whole_page(document: Document) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="generator" content="legroom">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(document.title or document.page_title)}</title><style>{_WHOLE}</style></head>\n"
        f'<body class="legroom">\n{body(document)}\n<footer>{escape(document.footer)}</footer>\n</body></html>\n'
    )


def body(document: Document, level: int = 1) -> str:
    """The title, the verdict and all parts; `level` is that of the title's heading."""
    title = document.title or document.page_title
    head = f"<h{level}>{escape(title)}</h{level}>" if title else ""
    said = "" if document.verdict is None else _verdict(document.verdict)
    ways = parts_html(f"try: {way}" for way in document.ways)
    return "\n".join(filter(None, (head, said, ways, parts_html(document.parts, level + bool(title)))))


def parts_html(parts: Iterable[Part], level: int = 2) -> str:
    """Parts of a document, one under the other; `level` is that of the headings of their sections."""
    return "\n".join(filter(None, (_part(part, level) for part in parts)))


def _part(part: Part, level: int) -> str:
    match part:
        case Table():
            return table_html(part)
        case Bars():
            return bars_drawing(part) if part.bars else ""
        case Curves():
            return curves_drawing(part)
        case Section():
            inside = parts_html(part.parts, level + 1)
            if part.folded:
                return f"<details><summary>{escape(part.title)}</summary>\n{inside}</details>" if inside else ""
            return f"<h{level}>{escape(part.title)}</h{level}>\n{inside}" if inside else ""
    note = part if isinstance(part, Note) else Note(part)
    return f"<p>{_styled(note)}</p>" if note.text.strip() else ""


def _verdict(verdict: Note) -> str:
    """The answer in a few words, and what there is to say beside it."""
    short, rest = verdict.text.removesuffix("."), ""
    if found := re.match(r"([^:;]{2,60}?)[:;] (.*)", verdict.text, re.DOTALL):
        short, rest = found.groups()
    return f'<p><span class="verdict {_VERDICTS.get(verdict.style, "")}">{escape(short)}</span> {escape(rest)}</p>'


def table_html(table: Table) -> str:
    """A table: numbers to the right, and wider than the screen only inside a frame that scrolls by itself."""
    if not any(table.header) and len(table.align) == 2:
        rows = (f"<dt>{_styled(name)}</dt><dd>{_styled(fact)}</dd>" for name, fact in table.rows)
        return f"<dl>{''.join(rows)}</dl>"
    kinds = [_column(table, i) for i in range(len(table.align))]
    titles = (f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(table.header, kinds, strict=True))
    top = f"<thead><tr>{''.join(titles)}</tr></thead>" if any(table.header) else ""
    rows = (_row(row, kinds) for row in table.rows)
    stacking = ' class="stacking"' if ' class="long"' in kinds else ""
    return f'<div class="wide" tabindex="0"><table{stacking}>{top}<tbody>{"".join(rows)}</tbody></table></div>'


def _column(table: Table, i: int) -> str:
    """The class of a column: of numbers, or of long texts, which get a line of their own where it is narrow."""
    if table.align[i] == "r":
        return ' class="n"'
    is_long = table.align[i] == "w" and max((len(row[i].text) for row in table.rows), default=0) > _SHORT
    return ' class="long"' if is_long else ""


def _row(row: list[Note], kinds: list[str]) -> str:
    first, *others = row
    if others and first.style == "bold" and not any(cell.text for cell in others):
        return f'<tr class="part"><th colspan="{len(row)}" scope="colgroup">{escape(first.text)}</th></tr>'
    cells = (f"<td{kind}>{_styled(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _styled(cell: Note) -> str:
    kind, text = _CLASSES.get(cell.style), escape(cell.text.strip())
    return f'<span class="{kind}">{text}</span>' if kind and text else text
