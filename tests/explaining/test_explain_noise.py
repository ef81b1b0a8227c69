"""What surrounds a failure in a log, and how the log was written, changes nothing about what is read."""

import json
import random
import textwrap

import pytest
from explain_fixtures import EXPECTED, NAMES, facts, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.explaining import explain
from legroom.explaining.log import Log, decode

KNOWN = [name for name in NAMES if EXPECTED[name]["kind"] != "unknown"]
NOISE = (
    "| rollout/ep_rew_mean | 137.2 |", "| time/fps            | 1210  |", "Using cuda device", "",
    "2024-05-06 07:08:09,101 INFO worker 3 ready", "Wrapping the env in a DummyVecEnv.",
    "  warnings.warn(", "UserWarning: `torch.load` with weights_only=False", "Saving to runs/ppo/step_9000.zip",
    " 45%|████▌     | 450/1000 [00:12<00:15, 36.02it/s]", "GPU memory: 4.2 GiB of 8.0 GiB", "loss -9.01 kl 0.009",
    "enemies killed: 12", "process pool of 8 workers started", "wandb: Run history:", "Epoch 137/500",
)  # fmt: skip
PREFIXES = (
    "[rank0]: ", "(RolloutWorker pid=123) ", "(PPO pid=9, ip=10.0.0.1) ", "2024-05-06 07:08:09,101 ", "trainer-1  | ",
    "2024-05-06T07:08:09.101Z ", "[2024-05-06 07:08:09] ERROR: ", "0: ", "[1,0]<stderr>:", "> ", "(pid=77) ", "wandb: ",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(KNOWN),
    st.lists(st.sampled_from(NOISE) | st.text("abcxyz 0189.:%", max_size=40), max_size=12),
    st.lists(st.sampled_from(NOISE) | st.text("abcxyz 0189.:%", max_size=40), max_size=12),
)
def test_unrelated_lines_before_and_after_change_nothing(name: str, before: list[str], after: list[str]) -> None:
    text = text_of(name)
    noisy = "\n".join([*before, text.rstrip("\n"), *after])
    assert facts(explain(noisy)) == facts(explain(text))


def test_the_noise_itself_is_no_failure() -> None:
    assert explain("\n".join(NOISE * 20)).kind == "unknown"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_launchers_put_before_every_line_changes_nothing(prefix: str) -> None:
    for name in KNOWN:
        text = text_of(name)
        prefixed = "".join(f"{prefix}{line}\n" for line in text.splitlines())
        assert facts(explain(prefixed)) == facts(explain(text)), name


@pytest.mark.parametrize("name", KNOWN)
def test_line_ends_colours_escapes_and_encodings_change_nothing(name: str) -> None:
    text = text_of(name)
    plain = facts(explain(text))
    assert facts(explain(text.replace("\n", "\r\n"))) == plain
    assert facts(explain("".join(f"\x1b[1;31m{line}\x1b[0m\n" for line in text.splitlines()))) == plain
    assert facts(explain(decode(text.encode("utf-16")))) == plain  # what PowerShell's > writes
    assert facts(explain(decode(b"\xff\xfe\xfa\n"[1:] + text.encode() + b"\n\x80\x81\n"))) == plain


@pytest.mark.parametrize("name", [name for name in KNOWN if "\\" not in text_of(name)])
def test_newlines_escaped_as_in_json_change_nothing(name: str) -> None:
    text = text_of(name)
    assert facts(explain(json.dumps({"level": "error", "message": text}, ensure_ascii=False))) == facts(explain(text))


@pytest.mark.parametrize(
    "name", [name for name in KNOWN if name.startswith(("cuda", "jax", "mps", "ray", "torch", "seed"))]
)
def test_messages_wrapped_at_80_columns_read_the_same(name: str) -> None:
    text = text_of(name)
    lines = [piece for line in text.splitlines() for piece in textwrap.wrap(line, 80, break_long_words=False) or [""]]
    assert facts(explain("\n".join(lines))) == facts(explain(text))


def test_random_bytes_are_unknown_and_never_an_error() -> None:
    source = random.Random(5)
    for length in (0, 1, 1000, 200_000):
        assert explain(decode(source.randbytes(length))).kind == "unknown"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_no_text_is_an_error(text: str) -> None:
    explain(text)
    explain(text + "MemoryError" + text + "Tried to allocate" + text)


def test_mangled_fixtures_are_no_error() -> None:
    """Cut anywhere, repeated, and with single characters replaced."""
    source = random.Random(9)
    for name in NAMES:
        text = text_of(name)
        for _ in range(5):
            cut = source.randrange(len(text))
            explain(text[cut:] + text[:cut])
            explain(text[:cut] + source.choice('("[{,.9') + text[cut + 1 :])
        explain(text * 20)


def test_a_windows_path_is_not_taken_apart_at_its_backslash_n() -> None:
    assert Log.of(r'File "C:\Users\new\train.py", line 3').text == r'File "C:\Users\new\train.py", line 3'
