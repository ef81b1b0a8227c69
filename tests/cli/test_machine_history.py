"""If these fail, a user's own trainings teach legroom nothing, or `machine --history` shows what never was."""

import json
from dataclasses import replace

import pytest
from in_process import legroom

from legroom.cli.watch import remember_watched
from legroom.machine.history import past_runs, remember_run
from legroom.model.footprint import Peak, Phase
from legroom.model.trace import Trace, Watched


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LEGROOM_HISTORY", raising=False)


def test_history_is_shown_with_what_it_does():
    assert "no training" in legroom("machine", "--history").stdout
    remember_run("mine", "sb3, traced", Peak(1000, 900, 1100, Phase.UPDATE), 1200, scale=1.0, seen_by="train")
    shown = legroom("machine", "--history").stdout
    assert "mine" in shown
    assert "outside" in shown
    assert "sb3, traced: 0 of 1 inside their band; bands are now 2.20 times as wide" in shown
    told = json.loads(legroom("machine", "--history", "--json").stdout)
    assert told["band_scales"] == {"sb3, traced": pytest.approx(2.2)}
    assert told["runs"][0]["measured"] == 1200


def watched(command, exit_code=0, peak=400_000_000):
    trace = Trace.__new__(Trace)
    object.__setattr__(trace, "peak_host", peak)
    return Watched(command, 1, 0.0, 1.0, exit_code, None, trace, None, None, None, None, "")


def test_a_watched_script_is_kept(tmp_path):
    script = tmp_path / "train.py"
    script.write_text('from stable_baselines3 import PPO\nPPO("MlpPolicy", "CartPole-v1").learn(1000)\n')
    found = watched(("python3", str(script)))
    assert remember_watched(found).measured == 400_000_000
    assert [run.seen_by for run in past_runs()] == ["watch"]
    for other in (
        replace(found, exit_code=1),
        replace(found, exact=False),
        replace(found, command=("python3", str(script), "--lr", "1")),
        replace(found, command=("bash", str(script))),
        replace(found, command=("python3", str(tmp_path / "none.py"))),
    ):
        assert remember_watched(other) is None
    assert len(past_runs()) == 1
