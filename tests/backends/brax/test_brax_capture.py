"""brax's own epoch, captured: its sizes are brax's, and nothing runs when it is taken abstractly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("brax")

from legroom.backends.brax.capture import capture  # noqa: E402
from legroom.backends.brax.compiling import _captured  # noqa: E402
from legroom.backends.brax.envs import make_training_env  # noqa: E402
from legroom.errors import BadInput  # noqa: E402
from legroom.model.run import Run  # noqa: E402


def make_run(**changes: Any) -> Run:
    data: dict[str, Any] = {
        "algo": "PPO",
        "backend": "brax",
        "env": {"id": "fast", "n_envs": 4},
        "hyperparams": {
            "batch_size": 2, "num_minibatches": 2, "unroll_length": 3, "num_updates_per_batch": 1,
            "episode_length": 6, "num_evals": 3,
        },
        "policy": {"kwargs": {"policy_hidden_layer_sizes": [4], "value_hidden_layer_sizes": [4]}},
        "eval": {"n_envs": 2},
        "total_timesteps": 48,
        "seed": 7,
    }  # fmt: skip
    return Run.model_validate({**data, **changes})


def test_nothing_is_allocated_when_captured_abstractly() -> None:
    many = make_run(
        env={"id": "fast", "n_envs": 2**20}, hyperparams={**make_run().hyperparams, "batch_size": 2**19}
    )  # a million environments
    before = len(jax.live_arrays())
    captured = capture(many)
    leaves = jax.tree_util.tree_leaves((captured.arguments, captured.evaluation_arguments))
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert captured.arguments[1].obs.shape == (1, 2**20, 2)
    assert len(jax.live_arrays()) <= before + 8  # constants of brax's own, not a million of anything
    captured.epoch.lower(*captured.arguments)  # and it can be lowered as it is


def test_sac_is_captured_with_its_replay_buffer() -> None:
    run = make_run(
        algo="SAC", hyperparams={"episode_length": 6, "batch_size": 4, "min_replay_size": 8},
        policy={"kwargs": {"hidden_layer_sizes": [4]}}, total_timesteps=1000,
    )  # fmt: skip
    captured = capture(run)
    _, env_state, buffer, _ = captured.arguments
    assert env_state.obs.shape == (1, 4, 2)
    # two observations of 2, one action, reward, discount and truncation: 8 numbers; num_timesteps of them by default
    assert buffer.data.shape == (1, 1000, 8)


def no_environment() -> dict:
    return {}


def test_what_brax_refuses_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="not a multiple of 3"):
        capture(make_run(env={"id": "fast", "n_envs": 3}))
    with pytest.raises(BadInput, match="did you mean 'fast'"):
        capture(make_run(env={"id": "fsat", "n_envs": 4}))
    with pytest.raises(BadInput, match="TypeError"):
        capture(make_run(env={"id": "brax_toys:Point", "n_envs": 4, "kwargs": {"wrong": 1}}))
    with pytest.raises(BadInput, match="which is not called"):
        capture(make_run(env={"id": "builtins:dict", "n_envs": 4}))
    with pytest.raises(BadInput, match="of type dict, which is not a brax environment"):
        capture(make_run(env={"id": f"{__name__}:no_environment", "n_envs": 4}))


def test_what_brax_has_not_got_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    run = make_run(
        algo="SAC", env={"id": "brax_toys:NamedPoint", "n_envs": 4}, hyperparams={"episode_length": 6}, policy={},
    )  # fmt: skip
    with pytest.raises(BadInput, match="Dictionary observations not implemented in SAC"):
        capture(run)


PLAYGROUND = """
class MjxEnv:
    pass

class registry:
    ALL_ENVS = ("CartpoleBalance", "OlderOne")
    get_default_config = staticmethod(lambda name: {"impl": "warp"} if name == "CartpoleBalance" else {})
    load = staticmethod(lambda name, **kwargs: (name, kwargs))

class wrapper:
    wrap_for_brax_training = None
"""


def test_environments_of_playground_have_the_physics_that_xla_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mujoco_playground.py").write_text(PLAYGROUND)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mujoco_playground", raising=False)

    def made(name: str, **kwargs: Any) -> Any:
        return make_training_env(make_run(env={"id": name, "n_envs": 4, "kwargs": kwargs})).env

    assert made("CartpoleBalance") == ("CartpoleBalance", {"config_overrides": {"impl": "jax"}})
    assert made("OlderOne") == ("OlderOne", {})
    given = {"config_overrides": {"impl": "warp"}}
    assert made("CartpoleBalance", **given) == ("CartpoleBalance", given)
    with pytest.raises(BadInput, match="Warp's physics are not part of XLA's plan"):
        _captured({"run": make_run(env={"id": "CartpoleBalance", "kwargs": given}).model_dump()}, lambda _: None)
