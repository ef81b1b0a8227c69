"""Every command, rule and knob has its page, links and images are there, and no page needs another host to be read."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
from bench.results import read_sections
from docs.blocks import DOCS, ROOT, pages
from docs.generate import generate
from docs.generators import knobs, results
from docs.generators.readme_figures import with_figures
from docs.terminal_svg import readme_picture

from legroom import __all__ as names
from legroom.backends.base import all_knobs
from legroom.backends.sb3.base_figures import SHIPPED_CPU, SHIPPED_CUDA
from legroom.checking.rule_table import RULES
from legroom.cli.main import SUMMARIES as COMMANDS
from legroom.named_runs import workloads

MOST_PICTURE, MOST_PICTURES = 160_000, 1_000_000
MOST_README_LINES = 150
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
INCLUDED = re.compile(r"^```\{(?:literal)?include\} (\S+)", re.M)


GENERATED = DOCS / "generated"


def test_generated_pages_are_what_the_code_says(tmp_path: Path) -> None:
    """python docs/generate.py makes them anew."""
    generate(tmp_path)
    made, committed = (
        {str(page.relative_to(folder)): page.read_text() for page in folder.rglob("*.*")}
        for folder in (tmp_path, GENERATED)
    )
    assert sorted(made) == sorted(committed)
    assert [name for name in made if made[name] != committed[name]] == []


def test_what_is_said_to_agents_is_there() -> None:
    """llms.txt: every command, option and field that it names."""
    text = (ROOT / "llms.txt").read_text()
    helps = {name: (GENERATED / f"help/{name}.txt").read_text() for name in COMMANDS}
    for line in re.findall(r"`legroom ([^`]+)`", text):
        name, *words = line.partition(" -- ")[0].split()
        assert [word for word in words if word.startswith("-") and f"{word} " not in helps[name]] == [], line
    assert all(command in text for command in ("predict", "fit", "train", "check", "explain", "watch", "profile"))
    assert [target for _, target in LINK.findall(text) if not (ROOT / target).exists()] == []


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    there = {page.stem for page in (DOCS / "commands").glob("*.md")} - {"index"}
    assert there == set(COMMANDS)
    listed = (DOCS / "commands/index.md").read_text().split()
    assert all(name in listed for name in COMMANDS)
    for name in COMMANDS:
        assert f"../generated/help/{name}.txt" in (DOCS / f"commands/{name}.md").read_text()


def test_every_rule_knob_run_and_name_is_described() -> None:
    for rule in RULES:
        text = (GENERATED / f"rules/{rule.code}.md").read_text()
        assert rule.what in text and rule.why in text and rule.remedy in text
        assert all(line in text for line in rule.example.strip().splitlines())
    for knob in all_knobs():
        text = (GENERATED / f"knobs/{knobs.page_name(knob.key)}.md").read_text()
        assert knob.say[1:] in text
    for workload in workloads():
        assert (DOCS / f"workloads/{workload.name}.md").exists()
        assert all(f"`{workload.name}:{run}`" in (GENERATED / "runs.md").read_text() for run in workload.run_files())
    api = (GENERATED / "api.md").read_text()
    assert all(f"### legroom.{name}\n" in api for name in names)
    assert {path.stem for path in (GENERATED / "help").iterdir()} == set(COMMANDS)


def test_figures_and_pictures_are_what_the_results_and_the_commands_say() -> None:
    """python docs/generate.py --images makes them anew."""
    readme = ROOT / "README.md"
    assert (DOCS / "images/predicted.svg").read_text() == results.chart()
    assert readme.read_text() == with_figures(readme.read_text())
    assert (DOCS / "images/terminal.svg").read_text() == readme_picture(readme)


def test_the_readme_is_short_and_begins_with_what_counts() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_README_LINES
    assert text.count("<!-- run") == 3 and "images/terminal.svg" in text and text.count("    pip install ") == 1
    first = (DOCS / "index.md").read_text()
    assert "images/terminal.svg" in first and "    pip install " in first and "right_for_me.md" in first


def test_every_word_of_the_glossary_is_there_once() -> None:
    words = [
        line.split("|")[1].strip()
        for line in (DOCS / "glossary.md").read_text().partition("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    assert len(words) == len(set(words))
    wanted = {"host memory", "GPU memory", "peak", "band", "worker", "environment", "rollout buffer", "replay buffer"}
    assert wanted <= set(words)


def test_the_facts_of_the_glossary_are_those_of_the_benches() -> None:
    sections = read_sections()
    facts = (DOCS / "glossary.md").read_text().partition("## Numbers that many pages use")[2]
    memory = {row[:2]: row[2] for row in sections["Workers: memory"].rows}
    forked = {row[:2]: row[2] for row in sections["Workers: fresh and forked"].rows}
    storage = {row[:2]: row[4] for row in sections["Lossless storage: figures"].rows}
    rounded = [float(memory["1 KB", library].split()[0]) for library in ("SubprocVecEnv", "LeanVecEnv")]
    assert [f"{number:.0f} MB" in facts for number in (rounded[0] + 0.5, rounded[1])] == [True, True]
    assert forked["100", "forked"] in facts
    times = (("noise-rollout", "add ÷ SB3's"), ("noise-replay", "add ÷ SB3's"),
             ("scrolling", "a later epoch ÷ SB3's, which has flattened"))  # fmt: skip
    for key in times:
        number = float(storage[key].rstrip("×"))
        assert f"{number:.1f} times" in facts or f"{number + 0.05:.1f} times" in facts, key


def test_links_and_images_of_pages_are_there() -> None:
    every = [*pages(), *GENERATED.rglob("*.md"), ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]
    missing = []
    for page in every:
        whole = page.read_text()
        missing += [f"{page}: {file}" for file in INCLUDED.findall(whole) if not there(page, file)]
        text = re.sub(r"```.*?^```", "", whole, flags=re.S | re.M)
        for image, target in LINK.findall(text):
            if target.startswith(("http:", "https:")):
                assert not image, f"{page}: a picture from another host: {target}"
                continue
            if not there(page, target):
                missing.append(f"{page}: {target}")
    assert not missing


def there(page: Path, target: str) -> bool:
    """Whether a link leads somewhere."""
    path, _, anchor = target.partition("#")
    included = {"commands.md": DOCS / "commands", "runs.md": DOCS / "workloads"}  # written for the page that has them
    home = included.get(page.name, page.parent) if GENERATED in page.parents else page.parent
    found = (home / path).resolve() if path else page
    if not found.exists():
        return False
    return not anchor or anchor in {
        made
        for line in found.read_text().splitlines()
        if line.startswith("#")
        for made in (slug(line), on_github(line))
    }


def slug(heading: str) -> str:
    text = heading.lstrip("#").strip().lower().replace("`", "")
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text.replace(".", "-")))


def on_github(heading: str) -> str:
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lstrip("#").strip().lower()))


def test_pictures_are_small() -> None:
    pictures = list((DOCS / "images").iterdir())
    assert {f"{workload.name}" for workload in workloads()} <= {picture.stem for picture in pictures}
    sizes = {picture.name: picture.stat().st_size for picture in pictures}
    assert max(sizes.values()) <= MOST_PICTURE and sum(sizes.values()) <= MOST_PICTURES


class Asks(HTMLParser):
    """Collects what a browser would fetch to show a page, and its links."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (value and name in ("src", "srcset", "data", "poster")) or (name == "href" and tag == "link" and value):
                self.fetched.append(value)
            elif value and name == "href" and tag == "a":
                self.links.append(value)


@pytest.mark.extras
@pytest.mark.skipif(find_spec("sphinx") is None, reason="make docs installs Sphinx; make test-docs tests it")
def test_built_pages_fetch_nothing_from_other_hosts(tmp_path: Path) -> None:
    built = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(built)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in built.rglob("*.html"):
        asks = Asks()
        asks.feed(page.read_text())
        outside = [url for url in asks.fetched if re.match(r"(?:https?:)?//", url)]
        assert not outside, f"{page.name} fetches {outside}"
        for url in asks.links:
            path = url.partition("#")[0].partition("?")[0]
            if path and not re.match(r"[a-z]+:", path):
                assert (page.parent / path).exists(), f"{page.name}: {url}"
    for sheet in built.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet.name


def test_a_worker_costs_the_same_wherever_it_is_said() -> None:
    """Bench, shipped figures, rules, advice and pages: one number each for SB3's workers and for light ones."""
    facts = (DOCS / "glossary.md").read_text().partition("## Numbers that many pages use")[2]
    with_cuda, light = (f"{nbytes / 1e6:.0f} MB" for nbytes in (SHIPPED_CUDA["worker"], SHIPPED_CPU["light_worker"]))
    assert with_cuda in facts and light in facts
    advice = (ROOT / "src/legroom/explaining/advice.py").read_text()
    assert f"{light} instead of {with_cuda} each" in advice
    (rule,) = (rule for rule in RULES if rule.name == "worker-imports-torch")
    assert with_cuda in rule.why and light in rule.why
    (heavy,) = (rule for rule in RULES if rule.name == "heavy-workers")
    (knob,) = (knob for knob in all_knobs() if knob.key == "env.workers" and light in knob.say)
    assert with_cuda in heavy.why and with_cuda in knob.say
    for page in ("howto/many_envs.md", "commands/train.md"):
        assert with_cuda in (DOCS / page).read_text() and "4.8" in (DOCS / page).read_text()
