"""Lean buffers answer every question that SB3's own buffers answer, and answer it byte for byte the same."""

import contextlib
import copy
import gc
import pickle
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest
import torch
from buffer_pairs import (
    ACTIONS,
    BOXES,
    DICT,
    LOOKS,
    MIB,
    PAGES,
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
    scribble,
    space_for,
)
from gymnasium import spaces
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from toy_envs import Wander, drift, fickle, noise, stack, still, tame

import legroom
from legroom.errors import BadInput, LegroomError

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


@pytest.mark.parametrize("rows", [1, 2, 3, 20])
def test_stacks_that_show_when_the_ring_has_run_over(rows):
    """Nothing moves for longer than the ring remembers, and then it does, frame by frame."""
    frames = stack(0, 4)
    pair = Pair("LeanReplayBuffer", STACKED, rows=rows, n_envs=1)
    for nothing_yet in (30, 0):
        steps = iter(range(10**6))
        waiting = partial(still_at_first, steps, nothing_yet, frames)
        for args, kwargs in pair.transitions(60, look=waiting, ends=0):
            pair.add(args, kwargs)
            pair.check()


def still_at_first(steps, nothing_yet, moving, space, rng, previous=None):
    return (still if next(steps) < nothing_yet else moving)(space, rng, previous)


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
def test_filling_is_counted_as_sb3_counts_it(name):
    pair = Pair(name, space_for(name), rows=4)
    for buffer in pair.both:
        with pytest.raises(AssertionError):
            next(iter(buffer.get(2)))
    for args, kwargs in pair.transitions(4):
        pair.check()
        pair.add(args, kwargs)
    pair.finish()
    for buffer in pair.both:
        with pytest.raises((IndexError, LegroomError)):
            buffer.add(*args, **kwargs)
    pair.check()


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


@pytest.mark.parametrize("name", PLAIN)
def test_writing_into_a_batch_does_not_reach_the_storage(name):
    pair = Pair(name, space_for(name), rows=16).feed(16, look=still)
    for batch in pair.lean.get(8) if not pair.is_replay else [pair.lean.sample(8) for _ in range(5)]:
        scribble(batch)
        if isinstance(batch.observations, dict):
            scribble(batch.observations)
    pair.check()


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


def test_abandoned_epochs_leave_no_threads_behind():
    pair = Pair("LeanRolloutBuffer", BOXES["float32"], rows=16).feed()
    next(pair.lean.get(4))
    before = threading.active_count()
    for _ in range(20):
        next(pair.lean.get(4))
    gc.collect()
    assert threading.active_count() <= before + 1


def test_two_epochs_at_once():
    pair = Pair("LeanRolloutBuffer", BOXES["float32"], rows=16).feed()

    def interleaved(buffer):
        np.random.seed(6)
        return [(facts(one), facts(other)) for one, other in zip(buffer.get(8), buffer.get(8), strict=True)]

    assert interleaved(pair.lean) == interleaved(pair.plain)


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


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
def test_masks_of_any_type(dtype):
    pair = Pair("LeanMaskableRolloutBuffer", BOXES["uint8"], rows=4)
    for args, kwargs in pair.transitions(4, masks="all"):
        pair.add(args, dict(action_masks=kwargs["action_masks"].astype(dtype).reshape(-1)))
    pair.finish()
    pair.check()


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


@pytest.mark.parametrize("name", REPLAYS)
def test_transitions_in_no_order(name):
    """Offline data: what follows an observation in the buffer is not what followed it in the environment."""
    pair = Pair(name, space_for(name), rows=30)
    given = list(pair.transitions(75))
    for index in np.random.default_rng(0).permutation(len(given)):
        pair.add(*given[index])
    pair.check()


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
def test_extend_is_many_adds(name):
    pair = Pair(name, DICT if "Dict" in name else BOXES["uint8"], rows=10)
    given = [args for args, _ in pair.transitions(25)]
    for buffer in pair.both:
        buffer.extend(*zip(*given, strict=True))
    pair.check()


@pytest.mark.parametrize("name", REPLAYS)
def test_an_emptied_replay_starts_anew(name):
    pair = Pair(name, space_for(name), rows=10).feed(25)
    for buffer in pair.both:
        buffer.reset()
    pair.check()
    for _ in range(3):
        pair.feed(6).check()
    with pytest.raises(ValueError):
        Pair(name, space_for(name)).lean.sample(4)  # as SB3: nothing to draw from


@pytest.mark.parametrize("name", PLAIN)
def test_observations_as_numpy_takes_them(name):
    """Another dtype is cast, strides do not matter, one observation serves all envs: as in an assignment."""
    space = spaces.Dict(a=BOXES["uint8"]) if "Dict" in name else BOXES["uint8"]
    rng = np.random.default_rng(0)
    forms = [
        lambda: rng.integers(0, 255, (2, 5, 37, 9)).astype(np.float64) + 0.5,
        lambda: rng.integers(0, 255, (2, 9, 37, 5)).transpose(0, 3, 2, 1).astype(np.uint8, order="K"),
        lambda: rng.integers(0, 255, (4, 5, 74, 9), np.uint8)[::-2, :, ::2],
        lambda: np.asfortranarray(rng.integers(0, 255, (2, 5, 37, 9), np.uint8)),
        lambda: rng.integers(0, 255, (5, 37, 9), np.uint8),
        lambda: rng.integers(0, 255, (1, 5, 37, 1), np.uint8),
        lambda: np.array(9),
    ]
    pair = Pair(name, space, rows=2 * len(forms))
    for nth, (args, kwargs) in enumerate(pair.transitions(2 * len(forms))):
        odd = [forms[nth % len(forms)]() for _ in range(2)]
        odd = [{"a": one} for one in odd] if "Dict" in name else odd
        count = 2 if pair.is_replay else 1
        pair.add((*odd[:count], *args[count:]), kwargs)
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


def test_n_step_returns_of_dict_observations_are_refused():
    """As SB3 refuses them, which asserts n_steps == 1 for Dict spaces."""
    with pytest.raises(BadInput, match="n_steps") as refused:
        legroom.LeanDictReplayBuffer(30, DICT, ACTIONS["Discrete"], n_steps=3)
    assert one_line(refused)


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


@pytest.mark.parametrize(
    "extras",
    [dict(prefetch=False), dict(codec="none"), dict(max_bytes=1), dict(codec="none", prefetch=False, max_bytes=1)],
    ids=str,
)
@pytest.mark.parametrize("name", PLAIN)
def test_no_switch_changes_an_answer(name, extras):
    if "Replay" in name:
        extras = {key: value for key, value in extras.items() if key != "prefetch"}  # of rollouts
    pair = Pair(name, space_for(name), rows=30, n_envs=3, **extras)
    pair.feed(30).check()
    if pair.is_replay:
        pair.feed(65, look=noise).check()
        return
    for buffer in pair.both:
        buffer.reset()
    pair.feed(look=noise).check()


@pytest.mark.parametrize("codec", ["zstd", "LZ4", "", None, 4])
@pytest.mark.parametrize("name", PLAIN)
def test_an_unknown_codec_is_one_line(name, codec):
    with pytest.raises(BadInput, match="codec") as refused:
        getattr(legroom, name)(10, space_for(name), ACTIONS["Discrete"], codec=codec)
    assert one_line(refused)


@pytest.mark.parametrize("name", PLAIN)
def test_extras_are_keyword_only(name):
    every_argument = (10, space_for(name), ACTIONS["Discrete"], "cpu")
    rest = (1, False, True) if "Replay" in name else (1, 0.99, 1)
    getattr(legroom, name)(*every_argument, *rest)
    with pytest.raises(TypeError):
        getattr(legroom, name)(*every_argument, *rest, None)


# Classes


@pytest.mark.parametrize("name", PLAIN)
def test_our_classes_are_sb3_classes(name):
    assert issubclass(getattr(legroom, name), PLAIN[name])
    assert isinstance(Pair(name, space_for(name)).lean, getattr(legroom, name))


@pytest.mark.parametrize("name", [name for name in PLAIN if "Dict" not in name])
def test_a_dict_space_picks_the_dict_form(name):
    dict_name = name.replace("Rollout", "DictRollout").replace("Replay", "DictReplay")
    pair = Pair(dict_name, DICT)
    size = 9 * 2 if pair.is_replay else 9
    pair.lean = getattr(legroom, name)(size, DICT, pair.action, n_envs=2, device="cpu", codec="none")
    assert isinstance(pair.lean, getattr(legroom, dict_name))
    assert isinstance(pair.lean, PLAIN[dict_name])
    pair.feed(9).check()


@pytest.mark.parametrize("name", [name for name in PLAIN if "Dict" in name])
def test_a_plain_space_is_nothing_for_the_dict_form(name):
    with pytest.raises((BadInput, AssertionError), match="Dict"):
        getattr(legroom, name)(10, VECTOR, ACTIONS["Discrete"])


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(n_sampled_goal=4, goal_selection_strategy="future"),
        dict(env=None),
        dict(goal_selection_strategy="final"),
        dict(copy_info_dict=True),
    ],
    ids=lambda kwargs: next(iter(kwargs)),
)
@pytest.mark.parametrize("name", REPLAYS)
def test_hindsight_is_refused(name, kwargs):
    with pytest.raises(BadInput, match=r"HER|Her|hindsight") as refused:
        getattr(legroom, name)(10, space_for(name), ACTIONS["Discrete"], **kwargs)
    assert one_line(refused)


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


ALONE = """
import sys
import legroom
names = "LeanRolloutBuffer LeanDictRolloutBuffer LeanMaskableRolloutBuffer LeanMaskableDictRolloutBuffer".split()
names += ["LeanReplayBuffer", "LeanDictReplayBuffer", "lean"]
assert set(names) <= set(legroom.__all__), legroom.__all__
heavy = {"torch", "stable_baselines3", "sb3_contrib", "gymnasium"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
from legroom import LeanReplayBuffer
assert "stable_baselines3" in sys.modules
"""


def test_importing_legroom_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


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


def test_pickled_while_spilled(tmp_path):
    pair = Pair("LeanReplayBuffer", PAGES, rows=300, max_bytes=MIB, spill_dir=tmp_path).feed(300, look=noise)
    pair.lean = pickle.loads(pickle.dumps(pair.lean))
    pair.feed(50, look=noise).check()
