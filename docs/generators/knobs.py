"""A page per knob of `legroom fit`, from the knob table and the schema of run files."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from docs.generators.markdown import table, tree
from docs.generators.run_file import described

from legroom.backends.base import all_knobs
from legroom.model.plan import Knob

PRICES = {
    "free": "Free: the same results to the bit, and no slower.",
    "slower": "Slower: the same mathematics; it takes longer.",
    "changes-learning": "Changes learning: something else is learned, however harmless. Turned last, and said.",
}
EXACT = {"bits": "equal to the bit", "rounding": "equal up to rounding, 1e-6 per update", "": "not the same"}


def pages() -> Mapping[str, str]:
    by_key: dict[str, list[Knob]] = {}
    for knob in all_knobs():
        by_key.setdefault(knob.key, []).append(knob)
    texts = {f"knobs/{page_name(key)}.md": _page(key, same) for key, same in by_key.items()}
    return {**texts, "knobs/index.md": _index(by_key)}


def page_name(key: str) -> str:
    return key.replace(".", "-")


def _page(key: str, same: list[Knob]) -> str:
    parts = [f"# {key}\n"]
    for knob in same:
        price = PRICES[knob.unprobed_price]
        if knob.asks_probe:
            price += " Free where a probe of the environment finds large observations that are mostly alike."
        parts += [
            f"**{knob.say[0].upper()}{knob.say[1:]}.**\n",
            table(["price", "results"], [(price, EXACT[knob.exact])]),
        ]
        ladder = inspect.getdoc(knob.ladder)
        if ladder:
            parts.append(f"How far `legroom fit` turns it: {_lowered(ladder)}\n")
    what = described(key)
    if what:
        parts.append(f"In a run file: {what}\n")
    option = f"--{key.rsplit('.', 1)[-1].replace('_', '-')} VALUE" if key.startswith(("env.", "hyperparams.")) else ""
    short = f", or `{option}` for short" if option else ""
    parts.append(f"By hand: `--set {key}=VALUE`{short}, with any command that takes a run.\n")
    return "\n".join(parts)


def _lowered(docstring: str) -> str:
    text = " ".join(docstring.split("\n\nArgs")[0].split())
    return text[0].lower() + text[1:]


def _index(by_key: Mapping[str, list[Knob]]) -> str:
    parts = [
        "# Knobs of fit\n",
        "What `legroom fit` may turn, cheapest first. Within a price, what saves most for the run at hand goes "
        "first.\n",
    ]
    for price, meaning in PRICES.items():
        rows = [
            (f"[{knob.key}]({page_name(knob.key)}.md)", EXACT[knob.exact], knob.say)
            for knob in all_knobs()
            if knob.unprobed_price == price
        ]
        parts += [f"## {price}\n", meaning + "\n", table(["knob", "results", "what it does"], rows)]
    parts += [
        "## What is not here\n",
        "Fewer epochs, fewer simulations per step, a shorter run, no replay buffer saved with PPO: often advised, and "
        "none of them changes how much memory a run needs.\n",
        tree(*(page_name(key) for key in by_key)),
    ]
    return "\n".join(parts)
