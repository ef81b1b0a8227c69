"""If these fail, the mine prices, orders or shows its blocks wrongly, and every schedule learned in it is worthless."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from legroom.errors import BadInput
from legroom_workloads.mine.blocks import COLUMNS, BlockModel
from legroom_workloads.mine.economics import Economics, block_values
from legroom_workloads.mine.env import MineEnv


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def deposit(shape=(3, 3, 2), seed=0, **columns):
    """Return a small random deposit; `columns` are set as given."""
    rng = np.random.default_rng(seed)
    usual = {"cu": 1.2, "mo": 0.02, "as": 0.01, "clays": 4.0, "bwi": 18.0, "rec": 90.0, "ton": 20_000.0, "upl": 0.0}
    channels = np.stack([rng.random(shape) * usual.get(name, 1.0) for name in COLUMNS]).astype(np.float32)
    channels[COLUMNS.index("ton")] = 10_000 + np.round(rng.random(shape) * 8000)
    channels[COLUMNS.index("upl")] = 0
    for name, value in columns.items():
        channels[COLUMNS.index(name)] = value
    return BlockModel(channels, "test")


def play(env, rng, steps):
    """Mine at random among what is allowed, beginning again whenever an episode ends; return all that was seen."""
    seen = []
    for _ in range(steps):
        action = rng.choice(np.flatnonzero(env.action_masks()))
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append((observation.copy(), reward, terminated))
        if terminated or truncated:
            seen.append((env.reset()[0].copy(), 0.0, False))
    return seen


# -- money ------------------------------------------------------------------------------------------------------------


def test_value_of_one_ore_block_by_hand():
    model = deposit((1, 1, 1), cu=0.8, mo=0.02, clays=5.0, bwi=17.0, rec=85.0, ton=16_000.0)
    # per tonne: 8 kg Cu * 0.85 * 2.20462 lb/kg * 3.8 $ = 56.9674; 0.2 kg Mo * 0.85 * 2.20462 * 15 = 5.6218
    # less processing 8, fixed 1.2, hardness (17 - 15) * 0.2, clay (5 - 3) * 0.5; then mining 2.5
    per_tonne = 56.9674 + 5.6218 - 8.0 - 1.2 - 0.4 - 1.0 - 2.5
    values, destination = block_values(model)
    assert values[0, 0, 0] == pytest.approx(16_000 * per_tonne, rel=1e-5)
    assert destination[0, 0, 0] == 1


def test_a_poor_block_is_milled_where_that_loses_less_than_dumping_it():
    # 0.15 % * 90 %: 11.31 $/t of revenue pay the mill's 9.2 but not the mining's 2.5 as well
    values, destination = block_values(deposit((1, 1, 1), cu=0.15, mo=0.0, clays=0, bwi=10, rec=90.0, ton=1000.0))
    assert destination[0, 0, 0] == 1
    assert values[0, 0, 0] == pytest.approx(1000 * (0.0015 * 0.9 * 2204.62 * 3.8 - 9.2 - 2.5), rel=1e-5)
    assert -2500 < values[0, 0, 0] < 0


def test_a_dollar_after_a_year_is_worth_1_over_1_12():
    factors = Economics().discount_factors(10, days_per_block=365 / 5)
    assert factors[4] == pytest.approx(1 / 1.12)  # the fifth block is out after a year
    assert factors[9] == pytest.approx(1 / 1.12**2)


def test_npv_is_the_sum_of_discounted_values_in_the_order_mined():
    model = deposit((3, 3, 2), cu=1.0, ton=10_000.0)
    env = MineEnv(model, mining_rate=1000.0, reward_scale=1000.0)  # ten days per block
    env.reset()
    values, order, rewards = block_values(model)[0], [], []
    rng, done, info = np.random.default_rng(1), False, {}
    while not done:
        action = rng.choice(np.flatnonzero(env.action_masks()))
        order.append(divmod(int(action), 3))
        _, reward, done, _, info = env.step(action)
        rewards.append(reward)
    npv = 0.0
    for k, (x, y) in enumerate(order):
        z = order[:k].count((x, y))
        npv += values[x, y, z] * 1.12 ** (-10 * (k + 1) / 365)
    assert info["npv"] == pytest.approx(npv, rel=1e-12)
    assert sum(rewards) * 1000 == pytest.approx(npv, rel=1e-12)
    assert (info["blocks"], info["days"]) == (18, pytest.approx(180))
    assert env.last_episode["npv"][-1] == pytest.approx(npv, rel=1e-12)


# -- precedence -------------------------------------------------------------------------------------------------------


def test_precedence_on_3x3x3_by_hand():
    env = MineEnv(deposit((3, 3, 3)), within="grid")  # blocks of 20×20×15 m
    env.reset()
    assert env.action_masks().all()  # the top bench is open
    env.step(4)
    assert env.action_masks().all()  # 15 m deeper, 45° reach 15 m: no other column's middle is so near
    env.step(4)
    assert env.action_masks().tolist() == [True] * 4 + [False] + [True] * 4  # 30 m deeper, all eight: at 20 or 28.3 m
    for column in (0, 1, 2, 3, 5, 6, 7, 8):
        assert not env.action_masks()[4]
        env.step(column)
    assert env.action_masks().all()
    env.step(4)
    assert env.action_masks().tolist() == [True] * 4 + [False] + [True] * 4  # the column is at its end


def slow_mask(mined, minable, size_m):
    """The rule as it is stated: blocks whose centres lie within 45 degrees over a block are gone."""
    mask = np.zeros(mined.shape[:2], bool)
    for x, y in np.ndindex(mask.shape):
        left = np.flatnonzero(~mined[x, y])
        if not len(left) or not minable[x, y, left[0]]:
            continue
        i, j, k = np.indices(mined.shape)
        over = (left[0] - k) * size_m[2]
        near = np.hypot((i - x) * size_m[0], (j - y) * size_m[1]) <= over + 1e-9
        mask[x, y] = mined[near & (over > 0)].all()
    return mask.reshape(-1)


@pytest.mark.parametrize("size_m", [(20.0, 20.0, 15.0), (10.0, 20.0, 20.0)])
@pytest.mark.parametrize("shape", [(5, 4, 3), (1, 6, 4), (4, 1, 2), (7, 7, 5)])
@pytest.mark.parametrize("within", ["pit", "grid"])
def test_mask_is_the_rule_at_every_step(shape, within, size_m):
    model = deposit(shape, seed=5)
    env = MineEnv(BlockModel(model.channels, model.name, size_m), within=within)
    rng = np.random.default_rng(2)
    observation, _ = env.reset()
    minable = env.prepared.pit if within == "pit" else np.ones(shape, bool)
    done, count = False, 0
    while not done:
        mask = env.action_masks()
        assert np.array_equal(mask, slow_mask(observation[13] > 0, minable, size_m))
        observation, _, done, _, _ = env.step(rng.choice(np.flatnonzero(mask)))
        count += 1
    assert count == minable.sum()
    assert not env.action_masks().any()
    assert np.array_equal(observation[13] > 0, minable)


# -- observations -----------------------------------------------------------------------------------------------------


def rebuilt(env):
    """Return the observation made from scratch, from the order in which blocks were mined."""
    ground, (_, nx, ny, nz) = env.prepared.ground, env.observation_space.shape
    observation = np.zeros((17, nx, ny, nz), np.float32)
    observation[:13], observation[16] = ground[:13], ground[13]
    for k, cell in enumerate(env.get_state()["cells"]):
        block = np.unravel_index(cell, (nx, ny, nz))
        observation[13][block] = 1
        observation[14][block] = (k + 1) * env.days_per_block
        observation[15][block] = 1 + env.prepared.destination[block]
    return observation


@pytest.mark.parametrize("copy", [True, False])
def test_the_observation_kept_in_place_is_the_one_rebuilt(copy):
    env = MineEnv(deposit((6, 5, 4), seed=1), copy=copy)
    rng = np.random.default_rng(3)
    observation, _ = env.reset(seed=1)
    for _ in range(3 * env.blocks_to_mine + 7):
        assert np.array_equal(observation, rebuilt(env))
        observation, _, done, _, _ = env.step(rng.choice(np.flatnonzero(env.action_masks())))
        if done:
            assert np.array_equal(observation, rebuilt(env))
            observation, _ = env.reset()
    assert set(np.unique(observation[15])) <= {0, 1, 2}


def test_copies_belong_to_the_caller():
    env = MineEnv(deposit((6, 5, 4), seed=1))
    kept = [env.reset()[0], *(seen[0] for seen in play(env, np.random.default_rng(0), 0))]
    images = [kept[0].copy()]
    rng = np.random.default_rng(0)
    for _ in range(12):
        kept.append(env.step(rng.choice(np.flatnonzero(env.action_masks())))[0])
        images.append(kept[-1].copy())
    assert all(np.array_equal(a, b) for a, b in zip(kept, images, strict=True))
    half = kept.pop()[:, 1:]  # a view keeps its memory as well
    image = half.copy()
    kept.clear()
    play(env, rng, 6)
    assert np.array_equal(half, image)
    first, _ = env.reset()
    first[...] = -1  # whatever the caller does to a copy
    assert np.array_equal(env.step(np.flatnonzero(env.action_masks())[0])[0], rebuilt(env))


def test_two_slots_take_turns_and_the_other_is_left_alone():
    env, plain = MineEnv(deposit((6, 5, 4), seed=1)), MineEnv(deposit((6, 5, 4), seed=1))
    slots = [np.full(env.observation_space.shape, np.nan, np.float32) for _ in range(2)]
    env.bind_observation(slots)
    env.write_to(0)
    previous, _ = env.reset()
    plain.reset()
    assert np.array_equal(slots[0], rebuilt(env))
    rng, turn = np.random.default_rng(4), 0
    for _ in range(2 * env.blocks_to_mine + 9):
        turn = 1 - turn
        before = previous.copy()
        env.write_to(turn)
        action = rng.choice(np.flatnonzero(env.action_masks()))
        observation, reward, done, _, _ = env.step(action)
        expected, expected_reward, *_ = plain.step(action)
        assert observation is slots[turn]
        assert np.array_equal(observation, expected) and reward == expected_reward
        assert np.array_equal(previous, before)
        if done:
            turn = 1 - turn
            env.write_to(turn)
            observation, _ = env.reset()
            assert np.array_equal(observation, plain.reset()[0])
        previous = observation


# -- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new_geology", [False, True])
def test_an_env_set_to_a_state_continues_bit_for_bit(new_geology):
    kwargs = dict(grid=[6, 6, 5], new_geology=True) if new_geology else dict(model=deposit((6, 5, 4), seed=1))
    env, other = MineEnv(**kwargs), MineEnv(**kwargs)
    env.reset(seed=7)
    other.reset(seed=8)
    slots = [np.zeros(env.observation_space.shape, np.float32) for _ in range(2)]
    other.bind_observation(slots)
    play(env, np.random.default_rng(0), env.blocks_to_mine + 4)
    play(other, np.random.default_rng(1), 9)
    state = env.get_state()
    other.set_state(state)
    assert np.array_equal(slots[0], rebuilt(env)) and np.array_equal(slots[1], rebuilt(env))
    assert np.array_equal(other.action_masks(), env.action_masks())
    assert np.array_equal(other.last_episode["days"], env.last_episode["days"])
    steps = env.blocks_to_mine + 3
    for (a, reward_a, done_a), (b, reward_b, done_b) in zip(
        play(env, np.random.default_rng(2), steps), play(other, np.random.default_rng(2), steps), strict=True
    ):
        assert np.array_equal(a, b) and reward_a == reward_b and done_a == done_b
    assert state["cells"].size == 4  # and what was captured did not move on


def test_a_state_of_another_deposit_is_refused():
    big, small = MineEnv(deposit((6, 5, 4), seed=1)), MineEnv(deposit((3, 3, 2)))
    big.reset()
    play(big, np.random.default_rng(0), 30)
    with pytest.raises(BadInput, match="not one of this deposit"):
        small.set_state(big.get_state())
    with pytest.raises(BadInput, match="not one of this deposit"):
        big.set_state({})


def test_new_geology_is_another_deposit_in_each_episode_and_the_same_for_the_same_seed():
    env = MineEnv(grid=[6, 6, 5], new_geology=True)
    first, second = env.reset(seed=3)[0], env.reset()[0]
    assert not np.array_equal(first[0], second[0])
    assert np.array_equal(env.reset(seed=3)[0], first)
    assert np.array_equal(env.reset()[0], second)


# -- use and misuse ---------------------------------------------------------------------------------------------------


def test_gymnasium_finds_nothing_wrong():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of unbounded spaces
        check_env(MineEnv(deposit((4, 4, 3)), render_mode="rgb_array"), skip_render_check=False)


def test_a_forbidden_column_costs_a_little_and_changes_nothing():
    env = MineEnv(deposit((3, 3, 3)), within="grid", invalid_penalty=0.5)
    env.reset()
    env.step(4)
    env.step(4)
    middle = env.get_state()
    _, reward, terminated, truncated, info = env.step(4)
    assert (reward, terminated, truncated, info["invalid_action"]) == (-0.5, False, False, True)
    assert np.array_equal(env.get_state()["cells"], middle["cells"]) and env.get_state()["npv"] == middle["npv"]
    for action in (-1, 9, 10**6):  # nor does one that does not exist
        assert env.step(action)[1] == -0.5
    steps = 0
    while not truncated and steps < 1000:
        *_, truncated, info = env.step(4)
        steps += 1
    assert truncated and info["npv"] == middle["npv"]


def test_the_horizon_ends_the_episode():
    env = MineEnv(deposit((4, 4, 3), cu=1.0), horizon=5)
    env.reset()
    ends = [done for _, _, done in play(env, np.random.default_rng(0), 5)]
    assert ends == [False] * 4 + [True, False]
    assert np.count_nonzero(env.last_episode["days"]) == 5


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"within": "everywhere"}, "within"),
        ({"mining_rate": 0}, "mining_rate"),
        ({"mining_rate": float("nan")}, "mining_rate"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 1.5}, "horizon"),
        ({"reward_scale": -1}, "reward_scale"),
        ({"economics": {"cu_price": 3.0}}, "did you mean cu_price_per_lb"),
        ({"economics": {"cu_price_per_lb": "high"}}, "cu_price_per_lb"),
        ({"economics": {"discount_rate": -0.5}}, "discount_rate"),
        ({"economics": 3}, "economics"),
        ({"economics": {"cu_price_per_lb": 0.0, "mo_price_per_lb": 0.0}}, "no block pays"),
        ({"new_geology": True}, "new_geology"),
        ({"grid": [2, 2, 2]}, "grid"),
        ({"render_mode": "human"}, "render_mode"),
        ({"data": "model.csv"}, "data"),
        ({"invalid_penalty": "much"}, "invalid_penalty"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(kwargs, said):
    with pytest.raises(BadInput, match=said) as problem:
        MineEnv(deposit(), **kwargs)
    assert "\n" not in str(problem.value)


def test_importing_the_env_brings_neither_torch_nor_scipy():
    code = (
        "import sys; import legroom_workloads.mine.env; from legroom_workloads.mine import MineEnv;"
        "print([name for name in ('torch', 'stable_baselines3', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
