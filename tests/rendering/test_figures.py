"""Drawings: well-formed, adding up, readable in light and dark, and asking nobody for anything."""

import re
from xml.etree import ElementTree

import pytest

from legroom.api import predict
from legroom.model.footprint import Peak, Phase
from legroom.model.outcome import TrainingEvent
from legroom.model.plan import Prediction
from legroom.model.verdict import Budget
from legroom.reading import read
from legroom.rendering import page
from legroom.rendering.document import Bar, Bars, BarSegment, Curves, Document, Limit, Note, Section, Series, Table
from legroom.rendering.drawing import KINDS, bars_drawing, curves_drawing, kind_of
from legroom.rendering.item_text import bar_of, item_table
from legroom.rendering.layout import draw, fit_columns
from legroom.rendering.page import body, table_html, whole_page
from legroom.rendering.prediction_text import comparison_document
from legroom.units import GIB, MIB

RUNS = ("mine:full", "gameboy:default", "fire:original", "robot:default", "ninja:parallel")


def bars(drawn: list[Bar], limits: tuple[Limit, ...] | list[Limit] = (), own: int | None = None) -> str:
    return bars_drawing(Bars("Memory", drawn, limits, own))


def reward(points: list[tuple[float, float]]) -> str:
    layer = Series("reward", "var(--trainer)", [y for _, y in points])
    return curves_drawing(Curves("reward", [x for x, _ in points], [layer], stacked=False, unit="number"))


def parsed(html: str) -> ElementTree.Element:
    """Return the fragment as XML, which it has to be."""
    return ElementTree.fromstring(f"<div>{html}</div>")


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_segments_of_a_bar_add_up_to_the_peak(name: str, device: str) -> None:
    footprint = predict(read(name), mode="arithmetic", device=device)
    for where, peak in (("host", footprint.host), ("gpu", footprint.gpu)):
        bar = bar_of(footprint, where)
        if peak is None:
            assert bar is None
            continue
        drawn = parsed(bars([bar], [Limit(8 * GIB, "RAM given")]))
        segments = [int(one.get("data-nbytes")) for one in drawn.iter("g")]
        assert sum(segments) == bar.nbytes == peak.nbytes
        widths = [float(rect.get("width").rstrip("%")) for g in drawn.iter("g") for rect in g.iter("rect")]
        assert sum(widths) <= 100
        for one in drawn.iter("g"):  # a mouse and a screen reader are told the same
            assert one.find("title").text == one.get("aria-label")
        whys = " ".join(one.get("aria-label") for one in drawn.iter("g"))
        named = "rollout.observations" if where == "host" else "gpu.activations"
        assert all(item.why[:20] in whys for item in footprint.items if item.name == named)


def test_names_from_outside_cannot_break_out() -> None:
    hostile = '<script>alert("x")</script>&\'"'
    bar = Bar(hostile, (BarSegment(f"rollout.{hostile}", MIB, hostile),), 0, 2 * MIB, hostile)
    layers = [Series(hostile, "var(--ink)", [1, 2])]
    marks = [TrainingEvent(0.5, "retreat", hostile)]
    table = Table([hostile, hostile], "lw")
    table.add(hostile, Note(hostile, "red"))
    parts = [
        Bars(hostile, [bar], [Limit(MIB, hostile)]),
        Curves(hostile, [0, 1], layers, said=hostile, limit=Limit(2, hostile), marks=marks),
        Curves(hostile, [0, 1], layers, stacked=False, unit="number"),
        Section(hostile, [table, hostile]), Section(hostile, [hostile], folded=True),
    ]  # fmt: skip
    html = body(Document(hostile, Note(f"{hostile}: {hostile}", "green"), parts, hostile))
    assert "<script" not in html and parsed(html) is not None


def test_a_limit_is_drawn_where_it_is_near_and_named_in_any_case() -> None:
    bar = Bar("run", (BarSegment("rollout", GIB),))
    near, far = bars([bar], [Limit(2 * GIB, "RAM")]), bars([bar], [Limit(1000 * GIB, "RAM")])
    assert near.count('class="cap"') == 1 and "RAM: 2.0 GiB" in near
    assert far.count('class="cap"') == 0 and "RAM: 1000.0 GiB" in far


def test_other_limits_are_named_only_where_they_are_on_the_scale() -> None:
    bar = Bar("run", (BarSegment("rollout", GIB),))
    html = bars([bar], [Limit(2 * GIB, "mine"), Limit(1000 * GIB, "a card"), Limit(GIB, "another")])
    assert "mine: 2.0 GiB" in html and "another: 1.0 GiB" in html and "a card" not in html
    assert "mine: 1000.0 GiB, beyond this scale" in bars([bar], [Limit(1000 * GIB, "mine")])


def test_the_scale_is_made_for_the_own_bar_and_a_far_longer_one_is_cut_off() -> None:
    own, near, far = (Bar(str(n), (BarSegment("rollout", n * GIB),)) for n in (1, 3, 102))
    widths = [
        float(rect.get("width", "").rstrip("%"))
        for rect in parsed(bars([own, near, far], own=0)).iter("rect")
        if rect.get("y")  # not of the legend
    ]
    assert widths == [pytest.approx(100 / 3.06, abs=0.01), pytest.approx(300 / 3.06, abs=0.01), 100]
    assert "102.0 GiB cut off: beyond this scale" in bars([own, near, far], own=0)
    assert "cut off" not in bars([own, near, far])


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ("rollout.observations", "storage"),
        ("replay", "storage"),
        ("runtime.worker imports", "envs"),
        ("env.frame stack", "envs"),
        ("envs.evaluation states", "evaluation"),
        ("network.optimizer", "optimizer"),
        ("optimizer.state", "optimizer"),
        ("gpu.activations", "update"),
        ("gpu.weights", "network"),
        ("gpu.context", "runtime"),
        ("something new", "other"),
    ],
)
def test_items_are_coloured_by_what_they_are_for(item: str, kind: str) -> None:
    assert kind_of(item) == kind


def test_a_timeline_shows_phases_the_prediction_its_limit_and_what_happened() -> None:
    times, phases = [0.0, 1.0, 2.0, 3.0], ["start", "collect", "update", "update"]
    html = curves_drawing(Curves(
        "Host", times, [Series("measured", "var(--ink)", [1 * GIB, 2 * GIB, 3 * GIB, 2 * GIB])],
        phases=phases, predicted=Peak(3 * GIB, 2 * GIB, 4 * GIB, Phase.UPDATE), limit=Limit(5 * GIB, "RAM"),
        marks=[
            TrainingEvent(1.5, "retreat", "out of memory"), TrainingEvent(2.0, "checkpoint", "checkpoint at step 10"),
        ],
    ))  # fmt: skip
    tree = parsed(html)
    said = [title.text for title in tree.iter("title")]
    assert {"start", "collect", "update", "measured"} <= set(said)
    assert "predicted between 2.0 GiB and 4.0 GiB" in said and "1.5 s: out of memory" in said
    texts = [text.text for text in tree.iter("text")]
    assert "RAM: 5.0 GiB" in texts and "predicted 3.0 GiB" in texts


def test_too_little_to_draw_is_nothing_and_much_stays_small() -> None:
    assert curves_drawing(Curves("", [], [Series("m", "red", [])])) == ""
    assert reward([(1.0, 2.0)]) == "" and reward([(0, float("nan")), (1, 1)]) == ""
    long = curves_drawing(Curves("long", range(100_000), [Series("m", "red", [i % 977 for i in range(100_000)])]))
    assert len(long) < 40_000


@pytest.mark.parametrize("values", [(-3.0, -3.0), (0.0, 0.0), (1e9, 2e9), (-1e-4, 1e-4), (497.0, 500.0)])
def test_every_reward_has_a_scale(values: tuple[float, float]) -> None:
    tree = parsed(reward([(0, values[0]), (1, values[1])]))
    (path,) = [one for one in tree.iter("path") if one.get("class") == "curve"]
    ys = [float(point.split(",")[1]) for point in path.get("d")[1:].split("L")]
    assert all(0 <= y <= 300 for y in ys)


def test_tables_are_well_formed_and_list_every_item() -> None:
    footprint = predict(read("gameboy:default"), mode="arithmetic", device="cuda")
    cells = [cell.text for cell in parsed(table_html(item_table(footprint))).iter("td")]
    assert all(item.name in cells for item in footprint.items if item.total)
    summed = Table(["a", "b"], "lr")
    summed.add("x", "1")
    summed.add("all", "1", style="bold")
    last = list(parsed(table_html(summed)).iter("tr"))[-1]
    assert [cell.get("class") for cell in last.iter("span")] == ["strong", "strong"]


def test_pages_ask_nobody_for_anything() -> None:
    run = read("gameboy:default")
    footprint = predict(run, mode="arithmetic", device="cuda")
    html = whole_page(comparison_document([Prediction(run, footprint, footprint, Budget(16 * GIB), True)]))
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", html)
    assert not re.search(r"<[^>]* style=", html)  # a strict content security policy would drop it


def luminance(colour: str) -> float:
    full = colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])
    parts = [int(full[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [page._LIGHT, page._DARK], ids=["light", "dark"])
def test_every_text_has_enough_contrast(scheme: str) -> None:
    colours = dict(re.findall(r"--([\w-]+):(#\w+)", scheme))
    for text in ("ink", "soft", "limit", "band", "leak", "growing", "ok"):
        for behind in ("paper", "card"):
            assert contrast(colours[text], colours[behind]) >= 4.5, (text, behind)
    for kind in KINDS:
        assert contrast(colours["on"], colours[f"k-{kind}"]) >= 4.5, kind
    for fill in ("trainer", "workers", "others", "gpu", *(f"k-{kind}" for kind in KINDS)):
        assert contrast(colours[fill], colours["paper"]) >= 3, fill


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_a_table_fits_the_width_and_never_breaks_a_number(width: int) -> None:
    made = Table(["knob", "price", "saved", "host peak", "why"], "llrrw", spare=("saved",))
    made.add("memory.micro_batch", Note("changes-learning", "red"), "105.1 GiB", "773.5 MiB", "it goes in pieces " * 4)
    made.add("env.workers", "free", "1.3 GiB", "210.4 GiB", "workers without torch")
    lines = draw([made], width=width, colour=False).splitlines()
    assert max(map(len, lines)) <= width
    assert "773.5 MiB" in "\n".join(lines) and "210.4 GiB" in "\n".join(lines)
    plain = draw([made], width=width, colour=False)
    assert re.sub(r"\x1b\[[\d;]*m", "", draw([made], width=width, colour=True)) == plain


def test_columns_are_as_wide_as_they_want_to_be_where_there_is_room() -> None:
    columns = fit_columns(["a", "b"], [["name", "1,000"]], "lr", 80)
    assert columns.shown == (0, 1) and columns.widths == (4, 5) and columns.gap == 2
