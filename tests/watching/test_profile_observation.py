"""What an observation costs, and whether it is safe to keep; most of it in this process."""

import profile_test_envs as envs
import pytest
from gymnasium.wrappers import FrameStackObservation

from legroom.rendering.profile_text import observation_findings
from legroom.watching.observation import observe
from legroom.watching.profile import profile


def seen(env, steps=120, **built_from):
    return observe(env, built_from, "", steps=steps)


def only_key(cost):
    (key,) = cost["keys"]
    return key


@pytest.mark.parametrize("env", [envs.LiveBuffer, envs.LiveView])
def test_an_environment_that_hands_out_its_buffer_is_reported(env):
    cost = seen(env())
    assert cost["aliases_env_memory"] and cost["changes_at_reset"]
    key = only_key(cost)
    assert key["aliases"] and key["changes_after"] == 1


def test_buffers_that_take_turns_say_for_how_long_an_observation_is_safe():
    key = only_key(seen(envs.TakesTurns()))
    assert key["aliases"] and key["changes_after"] == 3


@pytest.mark.parametrize("env", [envs.Shows, envs.NewState, envs.ConstantMap])
def test_copies_new_arrays_and_what_nobody_can_write_to_are_safe(env):
    cost = seen(env())
    assert not cost["aliases_env_memory"] and not cost["changes_at_reset"]


def test_memory_that_comes_again_counts_though_it_was_not_seen_to_change():
    env = envs.LiveBuffer()
    env.look = lambda: env.screen
    key = only_key(seen(env))
    assert key["aliases"] and key["changes_after"] is None and key["constant"]


def test_bytes_by_key_are_those_of_the_space():
    cost = seen(envs.Wide())
    sizes = {key["key"]: key["nbytes"] for key in cost["keys"]}
    assert sizes == {"pixels": 24, "flags": 16, "halves": 8, "single": 16, "exact": 16, "counter": 8}
    assert cost["nbytes"] == sum(sizes.values()) == 88


def test_another_dtype_than_the_space_says_is_told():
    key = only_key(seen(envs.OtherDtype()))
    assert (key["dtype"], key["returned"], key["nbytes"]) == ("float32", "float64", 16)


def test_stacks_and_rollouts_are_counted():
    cost = seen(FrameStackObservation(envs.Shows(), 3), frame_stack=2, rollout_steps=100)
    assert (cost["nbytes"], cost["stack"], cost["stacked_nbytes"]) == (24, 2, 48)
    assert (cost["rollout_steps"], cost["rollout_said"]) == (100, True)
    assert seen(envs.Shows())["rollout_steps"] == 1_000


def test_the_api_returns_it_with_the_profile():
    found = profile("profile_test_envs:LiveBuffer", 300)
    assert found.leak.verdict == "ok" and found.parallel == () and found.fits_envs is None
    assert found.observation.nbytes == 8 and found.observation.aliases_env_memory
    ((severity, text),) = observation_findings(found.observation)
    assert severity == "error" and "terminal_observation" in text
