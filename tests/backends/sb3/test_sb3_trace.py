"""Tracing a run on tensors without data: exact against recorded runs, nothing allocated, no guessing."""

import json
import resource
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from legroom.backends.sb3.trace import trace_run  # noqa: E402
from legroom.device.event_chunks import repeat, shorten  # noqa: E402
from legroom.environments.gym_spaces import from_gymnasium, to_gymnasium  # noqa: E402
from legroom.errors import Untraceable  # noqa: E402
from legroom.hollow.assumed_values import RunReads  # noqa: E402
from legroom.hollow.cuda_reduce import GpuShape, card_with, reduce_scratch  # noqa: E402
from legroom.hollow.dispatching import Follower  # noqa: E402
from legroom.hollow.replaying import replay  # noqa: E402
from legroom.model.footprint import Phase  # noqa: E402
from legroom.model.machine import Gpu, Machine  # noqa: E402
from legroom.model.run import Run, Spaces  # noqa: E402
from legroom.predicting.gpu import gpu_items  # noqa: E402
from legroom.units import MIB  # noqa: E402

TRUTH = Path(__file__).parents[3] / "bench" / "data" / "vram_truth.json"
ROWS = {row["name"]: row for row in json.loads(TRUTH.read_text())}
CHECKED = ["ppo-vec-rest", "ppo-sde", "ppo-hwc", "a2c-dict", "dqn-vec-wide", "sac-small", "td3-wide", "mppo-dict"]
MACHINE = Machine(ram=0, limit=None, available=0, swap=0, shm=0)


def make_run(algo="PPO", observation=None, action=None, *, policy=None, n_envs=2, source=None, env=None, **hyperparams):
    spaces = {
        "observation": observation or {"type": "box", "shape": [8]},
        "action": action or {"type": "discrete", "n": 4},
    }
    return Run.model_validate({
        "algo": algo,
        "env": {"n_envs": n_envs, "spaces": spaces, **(env or {})},
        "policy": policy or {},
        "hyperparams": hyperparams,
        "source": source,
    })  # fmt: skip


def run_of(row):
    hyperparams = row["kwargs"]
    total = row.get("total_timesteps") or 2 * hyperparams["n_steps"] * row["n_envs"]
    run = make_run(
        row["algo"], row["obs"], row["action"], n_envs=row["n_envs"],
        policy={"name": row["policy"], "kwargs": row.get("policy_kwargs", {})}, **hyperparams,
    )  # fmt: skip
    return run.replace(total_timesteps=total)


@pytest.mark.parametrize("name", CHECKED)
def test_peaks_are_those_of_the_real_run_to_the_byte(name):
    row = ROWS[name]
    net = trace_run(run_of(row), "cuda", validate_args=False)
    peaks = replay(net.events, rounds=net.rounds)
    truth = row["truth"]
    assert net.parameters == truth["parameters"]
    assert (peaks.peak_reserved, peaks.peak_allocated) == (truth["peak_reserved"], truth["peak_allocated"])


def test_figures_of_a_small_policy_by_hand():
    # two towers 8-64-64, heads of 4 and 1: 2 x (8*64+64 + 64*64+64) + (64*4+4) + (64+1) = 9,797 floats
    net = trace_run(make_run(n_steps=64, batch_size=32), "cpu")
    assert net.parameters == 9_797
    assert net.weights == net.gradients == 4 * 9_797
    assert net.optimizer == 8 * 9_797  # Adam's two moments; its step counters live on the host
    assert net.targets == 0
    # 32 rows of 8 observations, action, value, log-probability, advantage and return, all float32
    assert net.transient[Phase.UPDATE]["batch"] >= 32 * (8 + 5) * 4
    assert net.events == ()


def test_target_networks_are_told_apart():
    net = trace_run(make_run("DQN", learning_starts=10), "cuda")
    assert net.weights == 2 * net.targets > 0


def test_a_hundred_gigabytes_are_traced_without_allocating_them():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    observation = {"type": "box", "shape": [17, 49, 71, 58]}
    net = trace_run(make_run(observation=observation, n_steps=2048, batch_size=64, n_envs=4), "cuda")
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert net.transient[Phase.UPDATE]["batch"] > 64 * 13_721_176
    assert grown_mib < 250


def test_more_envs_never_need_less():
    few, many = (replay(trace_run(make_run(n_envs=n, n_steps=64, batch_size=64), "cuda").events) for n in (1, 16))
    assert many.peak_allocated >= few.peak_allocated


@pytest.mark.parametrize("name", ["torch.nn.ReLU", "nn.ReLU", "ReLU"])
def test_activation_functions_are_found_by_name(name):
    net = trace_run(make_run(policy={"kwargs": {"activation_fn": name, "net_arch": {"pi": [8], "vf": [4]}}}), "cpu")
    assert net.traced
    assert net.parameters > 0


def test_frames_are_stacked_and_images_turned_before_the_network_sees_them():
    image = {"type": "box", "shape": [64, 64, 3], "dtype": "uint8"}
    net = trace_run(
        make_run(observation=image, policy={"name": "CnnPolicy"}, env={"frame_stack": 4}, n_steps=32), "cuda"
    )
    first_layer = 32 * (4 * 3) * 8 * 8 * 4
    assert any(event[0] == "alloc" and event[2] == first_layer for event in net.events)


EXTRACTOR = """
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Peeking(BaseFeaturesExtractor):
        def __init__(self, observation_space, peek=True):
            super().__init__(observation_space, 8)
            self.peek = peek
        def forward(self, x):
            return x * 2 if not self.peek or x.sum().item() > 0 else x
"""


@pytest.fixture
def run_file(tmp_path):
    (tmp_path / "peeking_nets.py").write_text(textwrap.dedent(EXTRACTOR))
    (tmp_path / "run.yaml").touch()
    yield tmp_path / "run.yaml"
    sys.modules.pop("peeking_nets", None)


def test_an_extractor_beside_the_run_file_is_imported(run_file):
    policy = {"features_extractor": "peeking_nets:Peeking", "features_extractor_kwargs": {"peek": False}}
    trace_run(make_run(policy=policy, source=str(run_file), n_steps=32), "cuda")
    assert str(run_file.parent) not in sys.path


def test_a_network_that_decides_on_data_is_refused_not_guessed(run_file):
    run = make_run(policy={"features_extractor": "peeking_nets:Peeking"}, source=str(run_file), n_steps=32)
    with pytest.raises(Untraceable, match=r"peeking_nets\.py:10 reads a tensor's value"):
        trace_run(run, "cuda")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (make_run(policy={"features_extractor": "no_such_module:Net"}), "no_such_module"),
        (make_run(policy={"kwargs": {"net_architecture": [64]}}), "net_architecture"),
        (make_run("SAC"), "cannot be built"),
    ],
    ids=["missing module", "unknown argument", "wrong action space"],
)
def test_what_cannot_be_traced_says_why_in_one_line(run, reason):
    with pytest.raises(Untraceable, match=reason) as caught:
        trace_run(run, "cuda")
    assert "\n" not in str(caught.value)


def test_tracing_leaves_torch_as_it_was():
    modules = (torch.utils._foreach_utils, sys.modules["torch.optim.optimizer"])
    before = [module._get_foreach_kernels_supported_devices for module in modules]
    to, checks = torch.nn.Module.to, torch.distributions.Distribution._validate_args
    trace_run(make_run(n_steps=32), "cuda")
    assert [module._get_foreach_kernels_supported_devices for module in modules] == before
    assert (torch.nn.Module.to, torch.distributions.Distribution._validate_args) == (to, checks)


def test_gradients_are_added_in_place_as_the_engine_does_without_a_dispatch_mode():
    # x is used twice: the second gradient is added to the first, which nobody else holds
    follower = Follower.of_run(GpuShape(), RunReads("refuse", ()))
    with follower.entered():
        x = torch.empty(1000, device="meta", requires_grad=True)
        follower.recording = True
        (x.exp().sum() + x.sin().sum()).backward()
    births = sum(event[0] == "alloc" and event[2] == 4000 for event in follower.journal.events)
    assert births == 6  # x (when first used), exp, sin, cos and two products; a sum out of place would be a seventh


def test_items_add_up_to_what_is_reserved():
    net = trace_run(run_of(ROWS["sac-small"]), "cuda", validate_args=False)
    items, peaks = gpu_items(make_run("SAC"), net, MACHINE)
    inside = [item for item in items if item.name not in ("gpu.context", "gpu.cudnn workspace")]
    assert sum(item.nbytes for item in inside) == peaks.peak_reserved == ROWS["sac-small"]["truth"]["peak_reserved"]
    assert all(Phase.UPDATE in item.phases for item in inside if item.nbytes)


def test_cublas_takes_more_on_hopper():
    net = trace_run(make_run(n_steps=32), "cuda")
    h100 = Gpu("H100", 80 * 2**30, 80 * 2**30, (9, 0))
    plain, hopper = (gpu_items(make_run(), net, Machine(0, None, 0, 0, 0, gpus=g))[0] for g in ((), (h100,)))
    workspace = [next(i.nbytes for i in items if i.name == "gpu.workspace") for items in (plain, hopper)]
    assert workspace == [2 * 8_519_680, 2 * 32 * MIB]


def test_a_bias_gradient_of_a_wide_layer_takes_partial_sums():
    # recorded: the sum over 2048 rows of 512 columns on 128 multiprocessors is split over 32 blocks per output
    assert list(reduce_scratch((2048, 512), (512, 1), [0], 4, 4, GpuShape())) == [(8_388_608, 16)]
    assert list(reduce_scratch((2048, 1024), (1024, 1), [0], 4, 4, GpuShape())) == [(16_777_216, 32)]
    assert list(reduce_scratch((64, 512), (512, 1), [0], 4, 4, GpuShape())) == []


def test_rounds_are_repeated_with_blocks_of_their_own():
    # each round frees the block of the round before
    events = [("alloc", 0, 8), ("alloc", 1, 8), ("free", 0), ("alloc", 2, 8), ("free", 1), ("free", 2)]
    longer, origins = repeat(events, (0, 1, 3, 5), 2)
    assert longer == [
        *events[:5], ("alloc", 3, 8), ("free", 2), ("alloc", 4, 8), ("free", 3), ("free", 4),
    ]  # fmt: skip
    assert origins == {3: 2, 4: 2}


def test_rounds_that_differ_are_not_repeated():
    assert repeat([("alloc", 0, 8), ("free", 0), ("alloc", 1, 16), ("free", 1)], (0, 2, 4), 3) is None


@pytest.mark.parametrize(("count", "kept"), [(5, 5), (23, 23), (24, 12), (2048, 20)])
def test_shortening_keeps_the_remainder(count, kept):
    assert shorten(count, 12) == kept
    assert count % 12 == kept % 12


@pytest.mark.parametrize(
    "space",
    [
        {"type": "box", "shape": (4, 84, 84), "dtype": "uint8", "low": 0.0, "high": 255.0},
        {"type": "discrete", "n": 6},
        {"type": "multidiscrete", "nvec": (3, 4)},
        {"type": "multibinary", "n": 5},
        {"type": "dict", "spaces": {"a": {"type": "box", "shape": (3,), "dtype": "float64", "low": -2.0, "high": 2.0}}},
    ],
)
def test_spaces_survive_the_way_to_gymnasium_and_back(space):
    declared = Spaces.model_validate({"observation": space, "action": {"type": "discrete", "n": 2}}).observation
    assert from_gymnasium(to_gymnasium(declared)) == declared


def test_a_recurrent_policy_is_padded_to_its_longest_sequence():
    # 64 steps of each environment; 128 from the middle of one on are three pieces of up to 64: 192 rows of 4 bytes
    run = make_run(
        "RecurrentPPO", policy={"name": "MlpLstmPolicy"}, n_envs=8, n_steps=64, batch_size=128, n_epochs=1,
    )  # fmt: skip
    net = trace_run(run, "cuda")
    assert 192 * 4 in {event[2] for event in net.events if len(event) == 3 and net.labels[event[1]] != "workspace"}
    assert net.rnn_values > 0


def test_the_card_that_is_named_shapes_the_scratch_of_operators():
    run = make_run("PPO", policy={"kwargs": {"net_arch": [1024, 1024]}}, n_steps=2048, batch_size=2048)
    small, large = (trace_run(run, "cuda", card=card_with(count, (8, 6))) for count in (20, 84))
    sizes = [sum(event[2] for event in net.events if len(event) == 3) for net in (small, large)]
    assert sizes[0] < sizes[1]  # sums over the batch are split over more thread blocks
    assert "20 multiprocessors" in small.card and "8.6" in small.card


def test_what_inductor_compiles_widens_the_band_and_other_backends_do_not():
    extractors = (f"bench.truth_nets:{name}" for name in ("CompiledCnn", "CompiledCnn"))
    nets = [
        trace_run(
            make_run(
                observation={"type": "box", "shape": [4, 84, 84], "dtype": "uint8"}, n_steps=8, batch_size=16,
                policy={
                    "name": "CnnPolicy", "features_extractor": extractor,
                    "features_extractor_kwargs": {"backend": backend},
                },
            ),
            "cuda",
        )
        for extractor, backend in zip(extractors, ("aot_eager", "inductor"), strict=True)
    ]  # fmt: skip
    assert not nets[0].unmodelled
    assert sum(nets[1].unmodelled.values()) > 128 << 20
    assert len(nets[0].events) == len(nets[1].events)
