"""Before and after: what changed is said, what is noise is not."""

import json
from dataclasses import replace

import pytest

from legroom.errors import BadInput
from legroom.model.trace import EnvLeak, Profile, Scaling
from legroom.rendering.layout import draw
from legroom.rendering.profile_text import profile_document, profile_json
from legroom.watching.baseline import compare, read_baseline

MIB = 1 << 20
BEFORE = Profile(
    env="my:Env", steps=1_000, steps_per_s=1_000.0, leak=EnvLeak("ok", 0.1, (-0.5, 0.7)), level=20 * MIB,
    level_interval=(19 * MIB, 21 * MIB),
    scaling=Scaling(5 * MIB, (4 * MIB, 6 * MIB), 1000 * MIB),
)  # fmt: skip


def saved(tmp_path, profile=BEFORE, **changes):
    file = tmp_path / "before.json"
    file.write_text(json.dumps(json.loads(profile_json(profile)) | changes))
    return read_baseline(file)


def verdicts(comparison):
    return {change.what: change.verdict for change in comparison.changes}


def said(profile, comparison):
    return draw(profile_document(profile, comparison), width=100, colour=False)


def test_noise_is_passed_over_in_silence(tmp_path):
    now = replace(
        BEFORE, level=20.9 * MIB, level_interval=(20 * MIB, 22 * MIB),
        leak=EnvLeak("ok", -0.2, (-0.8, 0.4)), scaling=Scaling(5.5 * MIB, (5 * MIB, 6 * MIB)),
    )  # fmt: skip
    comparison = compare(now, saved(tmp_path), "before.json")
    assert set(verdicts(comparison).values()) == {"same"} and comparison.notes == ()
    assert "nothing changed beyond noise" in said(now, comparison)


def test_what_changed_is_called_better_or_worse(tmp_path):
    now = replace(
        BEFORE, level=10 * MIB, level_interval=(9 * MIB, 11 * MIB),
        leak=EnvLeak("growing", 64.0, (60.0, 68.0)), scaling=Scaling(2 * MIB, (1 * MIB, 3 * MIB)),
    )  # fmt: skip
    comparison = compare(now, saved(tmp_path), "before.json")
    assert verdicts(comparison) == {"level": "better", "bytes_per_step": "worse", "marginal": "better"}
    text = said(now, comparison)
    assert "changed beyond noise: memory in use better, growth per step worse" in text
    assert "better, 0.50×" in text


def test_a_leak_has_no_steady_level(tmp_path):
    now = replace(BEFORE, level=900 * MIB, level_interval=(800 * MIB, 900 * MIB), leak=EnvLeak("leak", 64, (60, 68)))
    found = verdicts(compare(now, saved(tmp_path), ""))
    assert (found["level"], found["bytes_per_step"]) == ("unknown", "worse")


def test_another_environment_or_version_is_one_line(tmp_path):
    before = saved(tmp_path, env="other:Env", versions={"legroom": "0.0.1"})
    text = said(BEFORE, compare(BEFORE, before, "before.json"))
    assert "note: the baseline is of another environment, other:Env" in text
    assert "note: the baseline was saved by legroom 0.0.1" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is not a profile"),
     ('{"legroom": 1}', "is not a profile"),
     ('{"legroom": 2, "leak": {"verdict": "ok"}}', "version 2"), ('{"leak": {"verdict": []}}', "is not a profile")],
)  # fmt: skip
def test_a_file_that_is_no_profile_is_refused(tmp_path, content, words):
    file = tmp_path / "before.json"
    file.write_text(content)
    with pytest.raises(BadInput, match=words):
        read_baseline(file)
    with pytest.raises(BadInput, match="No such file"):
        read_baseline(tmp_path / "missing.json")
