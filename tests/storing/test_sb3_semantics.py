"""Lean buffers answer every question that SB3's own buffers answer, and answer it byte for byte the same."""

import contextlib
import copy
import gc
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from buffer_pairs import (
    ACTIONS,
    BOXES,
    DICT,
    LOOKS,
    PLAIN,
    REPLAYS,
    ROLLOUTS,
    SPACES,
    STACKED,
    STACKS,
    VECTOR,
    Pair,
    asked,
    contents,
    facts,
    got,
    mask_width,
    one_line,
    sampled,
    space_for,
)
from gymnasium import spaces
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from toy_envs import Wander, drift, fickle, noise, still, tame

import legroom
from legroom.errors import BadInput

# Rollouts


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_rollout_of_every_space(space, look):
    Pair("LeanRolloutBuffer", space).feed(look=look).check()


@pytest.mark.parametrize("look", STACKS.values(), ids=STACKS)
@pytest.mark.parametrize("name", ["LeanRolloutBuffer", "LeanReplayBuffer"])
def test_stacks_on_every_axis(name, look):
    pair = Pair(name, STACKED, rows=40, n_envs=3)
    pair.feed(40, look=look).check()
    unruly = Pair(name, STACKED, rows=40, n_envs=3)
    unruly.feed(40, look=fickle(look, look, look, noise, still, drift, *STACKS.values())).check()


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("name", ["LeanDictRolloutBuffer", "LeanMaskableDictRolloutBuffer", "LeanDictReplayBuffer"])
def test_dict_of_every_kind(name, look):
    Pair(name, DICT, n_envs=3).feed(20 if "Replay" in name else None, look=look).check()


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("name", ROLLOUTS)
def test_get_in_any_batch_size_epoch_after_epoch(name, n_envs):
    pair = Pair(name, space_for(name), rows=11, n_envs=n_envs).feed()
    for batch_size in (4, None, 1, 11 * n_envs, 1000, 7):
        assert got(pair.lean, batch_size) == got(pair.plain, batch_size)


@pytest.mark.parametrize(
    ("name", "kind"),
    [  # masks are for discrete actions
        (name, kind)
        for name in PLAIN
        for kind, action in ACTIONS.items()
        if not ("Maskable" in name and isinstance(action, spaces.Box))
    ],
)
def test_every_action_space(name, kind):
    Pair(name, space_for(name), action=ACTIONS[kind]).feed(12 if "Replay" in name else None).check()


@pytest.mark.parametrize("name", ROLLOUTS)
def test_rollouts_follow_one_another(name):
    pair = Pair(name, space_for(name))
    for look in (drift, noise, still, drift):
        for buffer in pair.both:
            buffer.reset()
        pair.check()
        pair.feed(look=look).check()


@pytest.mark.parametrize("name", ROLLOUTS)
def test_random_numbers_are_drawn_at_the_moment_sb3_draws_them(name):
    pair = Pair(name, space_for(name)).feed()

    def drawn(buffer):
        np.random.seed(1)
        batches = iter(buffer.get(5))
        numbers = [np.random.random()]  # a generator has drawn nothing before its first batch
        for batch in batches:
            numbers += [np.random.random(), facts(batch)]
        return numbers

    assert drawn(pair.lean) == drawn(pair.plain)


@pytest.mark.parametrize("name", ROLLOUTS)
def test_arrays_that_callbacks_read_and_write(name):
    pair = Pair(name, space_for(name), n_envs=3).feed(finish=False)
    for buffer in pair.both:
        buffer.rewards[2:4] += 10
        buffer.values[0, 1] = 5
    pair.finish()
    names = ("actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns")
    for when in ("before", "after the first get"):
        for field in names:
            plain, lean = (np.asarray(getattr(buffer, field)) for buffer in pair.both)
            assert facts(lean) == facts(plain), (when, field)
        for buffer in pair.both:
            buffer.advantages *= 0.5
        pair.check()


@pytest.mark.parametrize("name", PLAIN)
def test_batches_that_are_kept_never_change(name):
    pair = Pair(name, space_for(name), rows=16).feed(16)

    def kept(buffer):
        np.random.seed(2)
        return list(buffer.get(8)) if not pair.is_replay else [buffer.sample(8) for _ in range(5)]

    plain, lean = (kept(buffer) for buffer in pair.both)
    expected = [facts(batch) for batch in plain]
    assert [facts(batch) for batch in lean] == expected
    for buffer in pair.both:
        buffer.reset()
    pair.feed(16, look=noise).check()
    gc.collect()
    assert [facts(batch) for batch in lean] == expected


@pytest.mark.parametrize("name", ROLLOUTS)
def test_an_epoch_cut_short(name):
    """PPO's target_kl leaves a generator behind half-way; the next epoch and the next rollout know nothing of it."""
    pair = Pair(name, space_for(name), rows=16).feed()
    for _ in range(3):
        for buffer in pair.both:
            np.random.seed(4)
            abandoned = buffer.get(8)
            next(abandoned)
        pair.check()
        for buffer in pair.both:
            buffer.reset()
        pair.feed().check()
        del abandoned


# Masks


@pytest.mark.parametrize("masks", ["none", "some", "all"])
@pytest.mark.parametrize("action", list(ACTIONS.values())[:3], ids=list(ACTIONS)[:3])
@pytest.mark.parametrize("name", ["LeanMaskableRolloutBuffer", "LeanMaskableDictRolloutBuffer"])
def test_action_masks_come_back_exactly(name, action, masks):
    pair = Pair(name, space_for(name), action=action, n_envs=3).feed(masks=masks)
    pair.check()
    batch = next(pair.lean.get())
    assert batch.action_masks.dtype == torch.float32
    assert batch.action_masks.shape == (27, mask_width(action))
    if masks == "none":
        assert batch.action_masks.eq(1).all()
    for buffer in pair.both:
        buffer.reset()
    pair.feed(masks="none").check()  # the masks of the last rollout are gone


def test_masks_between_0_and_1_are_never_rounded_silently():
    pair = Pair("LeanMaskableRolloutBuffer", BOXES["uint8"], rows=2)
    with contextlib.suppress(BadInput):
        for args, _ in pair.transitions(2):
            pair.add(args, dict(action_masks=np.full((2, 13), 0.5)))
        pair.finish()
        pair.check()


# Replay


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_replay_of_every_space(space, look):
    pair = Pair("LeanReplayBuffer", space, rows=7)
    pair.feed(5, look=look).check()
    pair.feed(20, look=look).check()


@pytest.mark.parametrize(("size", "n_envs"), [(1, 1), (2, 1), (7, 1), (37, 3), (2, 5), (31, 2), (100, 7)])
@pytest.mark.parametrize("name", REPLAYS)
def test_the_ring_runs_over_several_times(name, size, n_envs):
    """37 over 3 envs are 12 rows; 2 over 5 envs is 1 row."""
    pair = Pair(name, space_for(name), rows=1, n_envs=n_envs)
    pair.plain = PLAIN[name](size, pair.space, pair.action, device="cpu", n_envs=n_envs)
    pair.lean = getattr(legroom, name)(size, pair.space, pair.action, device="cpu", n_envs=n_envs)
    rows = pair.plain.buffer_size
    pair.check()
    for nth, (args, kwargs) in enumerate(pair.transitions(6 * rows + 3)):
        pair.add(args, kwargs)
        if nth % 5 == 0 or nth < 3:
            pair.check()
    pair.check()


@pytest.mark.parametrize("name", REPLAYS)
@pytest.mark.parametrize("timeouts", [True, False])
def test_terminal_observations_and_timeouts(name, timeouts):
    pair = Pair(name, space_for(name), rows=50, shared=dict(handle_timeout_termination=timeouts))
    for args, kwargs in pair.transitions(130, look=drift, ends=0.4):
        pair.add(args, kwargs)
    pair.check()
    for field in ("actions", "rewards", "dones", "timeouts"):
        plain, lean = (np.asarray(getattr(buffer, field)) for buffer in pair.both)
        assert facts(lean) == facts(plain), field
    assert pair.plain.timeouts.any() == timeouts  # there were some


@pytest.mark.parametrize("name", PLAIN)
def test_a_refused_add_leaves_the_buffer_usable(name):
    """One transition of wrong shapes (or one Ctrl-C) is an error; what comes after it is not."""
    pair = Pair(name, space_for(name), rows=24)
    given = list(pair.transitions(24))
    too_wide = np.zeros((7, 2, 3))
    for nth, (args, kwargs) in enumerate(given):
        broken = list(args)
        broken[nth % 4] = dict.fromkeys(DICT.spaces, too_wide) if isinstance(args[nth % 4], dict) else too_wide
        for buffer in pair.both:
            with pytest.raises(Exception):  # noqa: B017
                buffer.add(*broken, **kwargs)
        pair.add(args, kwargs)
        if pair.is_replay:
            pair.check()
    if not pair.is_replay:
        pair.finish()
    pair.check()


@pytest.mark.parametrize("name", REPLAYS)
def test_vec_normalize_at_sampling(name):
    space = spaces.Dict(image=BOXES["uint8"], vector=spaces.Box(-1, 1, (4,), np.float64)) if "Dict" in name else VECTOR
    pair = Pair(name, space, rows=30, n_envs=3).feed(80, look=tame)
    keys = dict(norm_obs_keys=["vector"]) if "Dict" in name else {}
    env = VecNormalize(DummyVecEnv([partial(Wander, space, pair.action)] * 3), **keys)
    env.reset()
    for _ in range(20):
        env.step(np.zeros(3, np.int64))
    assert sampled(pair.lean, env=env) == sampled(pair.plain, env=env)
    assert sampled(pair.lean) == sampled(pair.plain)  # what is stored stayed as it was


@pytest.mark.parametrize(("n_steps", "rows"), [(2, 40), (3, 40), (5, 13), (7, 5), (3, 1)])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_n_step_returns(n_steps, rows, n_envs):
    shared = dict(n_steps=n_steps, gamma=0.9)
    pair = Pair("LeanReplayBuffer", VECTOR, rows=rows, n_envs=n_envs, plain=NStepReplayBuffer, shared=shared)
    env = VecNormalize(DummyVecEnv([partial(Wander, VECTOR, pair.action)] * n_envs))
    env.reset()
    for nth, (args, kwargs) in enumerate(pair.transitions(4 * rows + 2, look=tame)):
        pair.add(args, kwargs)
        if nth % 3 == 0:
            pair.check()
    pair.check()
    assert sampled(pair.lean, env=env) == sampled(pair.plain, env=env)
    assert facts(np.asarray(pair.lean.timeouts)) == facts(pair.plain.timeouts)


def test_a_sampler_chooses_the_rows():
    asked_for = []

    def newest(buffer, batch_size):
        asked_for.append((buffer, batch_size))
        return (buffer.pos - 1 - np.arange(batch_size)) % buffer.buffer_size

    pair = Pair("LeanReplayBuffer", VECTOR, rows=20, sampler=newest).feed(33)
    rows = newest(pair.plain, 7)
    asked_for.clear()
    assert asked(lambda: [pair.lean.sample(7)]) == asked(lambda: [pair.plain._get_samples(rows)])
    assert asked_for == [(pair.lean, 7)]


@pytest.mark.parametrize("name", REPLAYS)
def test_optimize_memory_usage_is_accepted_and_ignored(name):
    pair = Pair(name, space_for(name), rows=20, optimize_memory_usage=True).feed(55)
    pair.check()


# Switches


# Classes


@pytest.mark.parametrize("name", [name for name in PLAIN if "Dict" not in name])
def test_a_dict_space_picks_the_dict_form(name):
    dict_name = name.replace("Rollout", "DictRollout").replace("Replay", "DictReplay")
    pair = Pair(dict_name, DICT)
    size = 9 * 2 if pair.is_replay else 9
    pair.lean = getattr(legroom, name)(size, DICT, pair.action, n_envs=2, device="cpu", codec="none")
    assert isinstance(pair.lean, getattr(legroom, dict_name))
    assert isinstance(pair.lean, PLAIN[dict_name])
    pair.feed(9).check()


def test_lean_makes_hindsight_lean_too():
    model = legroom.lean(
        SAC, "MultiInputPolicy", BitFlippingEnv(continuous=True), replay_buffer_class=HerReplayBuffer, buffer_size=99
    )
    assert type(model.replay_buffer) is legroom.LeanHerReplayBuffer
    assert isinstance(model.replay_buffer, HerReplayBuffer)  # SB3 gives its environment to those alone


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_hindsight_samples_the_same_goals_and_rewards(tmp_path, strategy):
    """Through episodes that end, a ring that wraps, a copy and a file; the random numbers drawn are SB3's too."""
    env = DummyVecEnv([partial(BitFlippingEnv, n_bits=40, max_steps=9)] * 3)
    made_of = (150, env.observation_space, env.action_space)
    made_with = dict(env=env, n_envs=3, device="cpu", goal_selection_strategy=strategy)
    plain, lean = HerReplayBuffer(*made_of, **made_with), legroom.LeanHerReplayBuffer(*made_of, **made_with)
    env.action_space.seed(1)
    obs = env.reset()
    for step in range(130):
        actions = np.array([env.action_space.sample() for _ in range(3)])
        after, rewards, dones, infos = env.step(actions)
        for buffer in (plain, lean):
            buffer.add(obs, after, actions, rewards, dones, infos)
        obs = copy.deepcopy(after)
        if step % 25 != 24:
            continue
        lean.save(tmp_path / "her")
        loaded = legroom.LeanHerReplayBuffer(*made_of, **made_with)
        loaded.load(tmp_path / "her")
        pickled = pickle.loads(pickle.dumps(lean))
        pickled.set_env(env)
        for one in (lean, loaded, pickled):
            found = []
            for buffer in (plain, one):
                np.random.seed(step)
                found.append((facts(buffer.sample(64)), facts(buffer.sample(7)), np.random.random()))
            assert found[0] == found[1]
    assert lean.infos.size == 0
    with pytest.raises(BadInput, match="copy_info_dict") as refused:
        legroom.LeanHerReplayBuffer(*made_of, **made_with, copy_info_dict=True).save(tmp_path / "her")
    assert one_line(refused)


# Pickle


@pytest.mark.parametrize("through", [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy], ids=["pickle", "copy"])
@pytest.mark.parametrize("rows", [0, 4, 9, 23])
@pytest.mark.parametrize("name", PLAIN)
def test_pickled_and_back(name, rows, through):
    pair = Pair(name, space_for(name))
    pair.feed(rows if pair.is_replay else min(rows, 9))
    original = pair.lean
    before = contents(original)
    pair.lean = through(original)
    assert type(pair.lean) is type(original)
    pair.check()
    pair.feed(7 if pair.is_replay else None).check()
    if pair.is_replay:
        assert contents(original) == before  # the copy is a buffer of its own
    for buffer in pair.both:
        buffer.reset()
    pair.feed(9).check()
