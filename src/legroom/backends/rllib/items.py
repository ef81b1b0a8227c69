"""Predict an RLlib run on one machine, role by role: Ray's services, the driver with its learner, the env runners.

The networks are SB3's (`modules.py`), so weights, gradients, optimizer and the update of one minibatch are
those of an SB3 run with the same minibatch, the *shadow*: estimated, traced and measured as such, never trained.

What is RLlib's own is in the data's way. A runner keeps a step as Python objects until its sample is complete, then as
arrays; the sample goes through the object store; the learner makes one batch of all of it,
beside the samples (`BATCH_COPIES`). A replay buffer is a list of episodes in the driver.

Mirrors SingleAgentEnvRunner, the learner's connectors and EpisodeReplayBuffer of ray 2.60.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from legroom.backends.rllib.translation import RllibPlan, rllib_plan
from legroom.backends.sb3.bill.network import network_items
from legroom.backends.sb3.stored import (
    actions_nbytes,
    bounds_nbytes,
    mask_size,
    observation_nbytes,
    wrapper_bounds_nbytes,
)
from legroom.machine.versions import read_versions
from legroom.model.evidence import DeviceName, Evidence
from legroom.model.facts import spaces_of
from legroom.model.footprint import AllocatorPeaks, Footprint, Item, Known, Phase, Place
from legroom.model.run import MemorySpec, Run
from legroom.model.spaces import BoxSpace
from legroom.predicting.constraints import broken_rules
from legroom.predicting.gpu import gpu_items

FLOAT32, FLOAT64 = 4, 8
COLLECTED = (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT)
UPDATED = (Phase.UPDATE, Phase.CHECKPOINT)

# Measured 2026-11-16, ray 2.60.0, numpy 2.4.6. Those of one step by `bench.ray_data` of eca25f63 (a runner and a replay
# buffer, each in a process of its own); the others with samples of 14 MB on two nodes, `bench.ray_measure` of PPO on
# 12 `bench.ray_envs:Flat` of 28 kB with 128 steps each: a process of its own has no object store to copy out of.
STEP_OBJECTS = 100  # around one step of a sample: a runner turns an episode into arrays as soon as it ends
STEP_KEPT = 310  # around one step of an episode in a replay buffer: its info, its place in the index
REPLAY_SHARE = 1.2  # of a step's bytes there: episodes grow by joining arrays; 8,578 B for each further step of 7,072 B
SAMPLE_COPIES = 2.0  # beside the collected observations: stacked into arrays, and on their way into the store
BATCH_COPIES = 4.5  # of the whole train batch: episodes with one step more, batch, tensors, and what malloc keeps
SHUFFLED_COPIES = 2.5  # from the second epoch on: columns drawn in another order while the batch exists
DATA_ERROR = 0.25  # of all these
STORE_GENERATIONS = 1.5  # an object may be freed after the next one has come; its pages are never given back: 1 to 2
STORE_ERROR = 0.35
INLINE = 100_000  # an object below this travels in the message and is in no object store
# A driver with a replay buffer took 85 MB more than predicted (DQN on numbers, `bench.ray_nodes`, 2026-11-16), one
# without 28 MB at most; what of it malloc keeps is not known before.
DRIVER_ERROR, REPLAYING_DRIVER_ERROR = 30_000_000, 90_000_000

# Of anonymous memory by role, and the mapped libraries of all of them; measured 2026-11-16, Linux x86-64, Python 3.11,
# ray 2.60.0, torch 2.13.0+cpu, SB3 2.9.2, gymnasium 1.2.2, without the dashboard's pages (include_dashboard=False).
RAY_NBYTES = {
    "head": 130_300_000,  # what only the head runs: global control store, autoscaler's monitor, dashboard
    "node": 109_600_000,  # raylet, dashboard agent, runtime environment agent
    "log_monitor": 44_500_000,
    "driver": 387_000_000,  # the training process after a first tiny update, its learner in it
    "runner": 381_900_000,  # an env runner that has sampled a little
    "files": 306_800_000,  # mapped libraries of all of them
}
CUDA_BUILD_MORE = {"driver": 250_000_000, "runner": 130_000_000, "files": 300_000_000}  # torch 2.14.1 with CUDA 13
RAY_ERROR = 0.10


def ray_figures(run: Run, device: DeviceName, *, measure: bool) -> dict[str, int]:
    """Return what Ray's services and RLlib's processes hold before they do anything, by role as in `RAY_NBYTES`."""
    with_cuda = device == "cuda" or not read_versions(("torch",)).get("torch", "+cpu").endswith("+cpu")
    more = CUDA_BUILD_MORE if with_cuda else {}
    return {role: nbytes + more.get(role, 0) for role, nbytes in RAY_NBYTES.items()}


def shadow_of(run: Run, plan: RllibPlan | None = None) -> Run:
    """Return the SB3 run whose networks and minibatches are those of this RLlib run."""
    plan = plan or rllib_plan(run)
    env = run.env.model_copy(update={"n_envs": plan.envs_per_runner, "workers": "dummy", "envs_per_worker": 1})
    hyperparams: dict[str, Any] = {"batch_size": plan.minibatch_size}
    if plan.algo == "PPO":
        hyperparams["n_steps"] = max(-(-plan.train_batch_size // plan.envs_per_runner), 1)
    else:
        hyperparams["buffer_size"] = max(plan.replay_capacity or 1, plan.envs_per_runner)
    return run.replace(
        backend="sb3", env=env, hyperparams=hyperparams, memory=MemorySpec(), eval=None,
        checkpoint=None, total_timesteps=None,
    )  # fmt: skip


def on_one_machine(run: Run, evidence: Evidence) -> Footprint:
    """Return the bill of a run whose Ray is started on this machine alone."""
    plan = rllib_plan(run)
    shadow = shadow_of(run, plan)
    items = [*_ray_items(evidence.base), *_driver_items(run, plan, shadow, evidence)]
    runner = runner_items(run, plan, evidence)
    if plan.runners:
        # the driver reads in place what runners wrote to the object store, and that is among its items already
        items += (replace(item, count=plan.runners) for item in runner if item.place is not Place.SHM)
    else:  # the environments are in the driver
        items += (replace(item, place=Place.HOST) for item in runner)
    allocator: AllocatorPeaks | None = None
    if evidence.device == "cuda" and evidence.net is not None:
        on_gpu, allocator = gpu_items(shadow, evidence.net, evidence.machine)
        batch = 2 * plan.train_batch_size * step_nbytes(run, plan) // max(plan.learners, 1)
        why = "the whole train batch, which RLlib moves to the GPU at once"
        items += [*on_gpu, Item("learner.train batch", batch, Place.GPU, why, (Phase.UPDATE,))]
    kept = tuple(item for item in items if item.total)
    findings = tuple(finding for finding in broken_rules(shadow) if finding.severity == "error")
    return Footprint(run.name, kept, evidence.device, findings, allocator, (*evidence.notes, *plan.said))


def runner_request(run: Run, evidence: Evidence) -> int:
    """Return the bytes that one env runner should ask Ray for: the upper end of what it is predicted to need."""
    plan = rllib_plan(run)
    items = runner_items(run, plan, evidence) if plan.runners else ()
    return Footprint(run.name, tuple(item for item in items if item.total), "cpu").host.high


def step_nbytes(run: Run, plan: RllibPlan) -> int:
    """Return the bytes of one step in arrays: observation, mask, action, reward, and what the policy put out."""
    _, action = spaces_of(run)
    outputs = _outputs(run)
    nbytes = observation_nbytes(run) + actions_nbytes(action, replay=False) + FLOAT64  # type: ignore[arg-type]
    if plan.masked:
        nbytes += mask_size(action)
    if plan.algo == "PPO":
        nbytes += FLOAT32 * (outputs + 1)  # the distribution's inputs, and the action's log-probability
    return nbytes


def _outputs(run: Run) -> int:
    _, action = spaces_of(run)
    if isinstance(action, BoxSpace):
        return 2 * (actions_nbytes(action, replay=True) // FLOAT32)
    return mask_size(action)


def _base(name: str, nbytes: int, why: str, place: Place = Place.HOST) -> Item:
    return Item(name, nbytes, place, why, known=Known.DEFAULT, error=int(RAY_ERROR * nbytes))


def _ray_items(nbytes: Mapping[str, int]) -> Iterator[Item]:
    yield _base("ray.node services", nbytes["node"], "raylet, dashboard agent, runtime environment agent")
    yield _base("ray.log monitor", nbytes["log_monitor"], "sends what workers print to the driver")
    yield _base("ray.libraries", nbytes["files"], "mapped libraries (torch, ray), once per node")
    yield _base("ray.head services", nbytes["head"], "global control store, autoscaler's monitor, dashboard")


def runner_items(run: Run, plan: RllibPlan, evidence: Evidence) -> Iterator[Item]:
    """Yield what one env runner adds to its node, with what it has in the object store."""
    shadow = shadow_of(run, plan)
    envs, fragment = plan.envs_per_runner, plan.rollout_fragment_length
    why = "an env runner: interpreter, torch, ray, gymnasium, RLlib, SB3's networks"
    if plan.runners:  # else the environments are in the driver
        yield _base("runner.base", evidence.base["runner"], why, Place.WORKER)
        if evidence.net is not None:
            weights = evidence.net.weights - evidence.net.targets
            why = "its copy of the policy, and the one that arrives"
            yield Item("runner.weights", 2 * weights, Place.WORKER, why, known=evidence.net.known)
    yield from _env_items(run, shadow, evidence, envs)
    acting = evidence.net.transient.get(Phase.COLLECT, {}).get("temporaries", 0) if evidence.net else 0
    yield Item("runner.acting", acting, Place.WORKER, f"one pass for {envs:,} envs", (Phase.COLLECT,))
    steps = envs * fragment
    each = step_nbytes(run, plan)
    objects = steps * (each + STEP_OBJECTS)
    why = f"{envs:,} envs x {fragment:,} steps x {each:,} B, and Python objects around each step"
    yield _data("runner.sample", objects, Place.WORKER, why, COLLECTED)
    why = "its observations stacked into arrays, and those written to the object store"
    yield _data("runner.sample copies", int(SAMPLE_COPIES * steps * each), Place.WORKER, why, COLLECTED)
    if plan.runners and steps * each >= INLINE:
        why = "the sample in the object store of its node, and the one before"
        yield _in_store("store.sample", steps * each, why)


def _env_items(run: Run, shadow: Run, evidence: Evidence, envs: int) -> Iterator[Item]:
    observation, _ = spaces_of(run)
    nbytes, known, why = run.env.nbytes, Known.DEFAULT, "from the run file"
    if nbytes is None and evidence.env_nbytes is not None:
        nbytes, known, why = evidence.env_nbytes, Known.MEASURED, "measured by building one"
    if nbytes is not None:
        yield Item("env.instance", envs * nbytes, Place.WORKER, f"{envs:,} envs: {why}", known=known,
                   error=envs * nbytes // 10)  # fmt: skip
    if nbytes is None or run.env.nbytes is not None:
        bounds = bounds_nbytes(observation) + wrapper_bounds_nbytes(shadow)
        yield Item("env.space bounds", envs * bounds, Place.WORKER, "low, high and two masks per Box and env")
    flying = 3 * envs * observation_nbytes(shadow)
    yield Item("env.observations", flying, Place.WORKER, "the env's, the vector's and the policy's input", COLLECTED)


def _driver_items(run: Run, plan: RllibPlan, shadow: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield what the driver holds on the head: the learner, the batch, the replay buffer, samples that arrive."""
    why = "the training process: interpreter, torch, ray, RLlib, SB3"
    base = _base("driver.base", evidence.base["driver"], why)
    unsure = DRIVER_ERROR if plan.replay_capacity is None else REPLAYING_DRIVER_ERROR
    yield replace(base, error=max(base.error, unsure))
    for item in network_items(shadow, evidence):
        if item.name not in ("collect.temporaries", "update.minibatch copies"):
            yield replace(item, name=f"learner.{item.name.partition('.')[2]}")
    if evidence.net is not None:
        weights = evidence.net.weights - evidence.net.targets
        why = "the local runner's copy of the policy"
        yield Item("driver.weights", weights, Place.HOST, why, known=evidence.net.known)
        if plan.runners and weights >= INLINE:
            why = "on their way to the runners: those of this update and of the one before"
            yield _in_store("store.weights", weights, why)
    each, batch = step_nbytes(run, plan), plan.train_batch_size
    arrived = batch if plan.replay_capacity is None else plan.steps_per_round
    if plan.runners and arrived * each // plan.runners >= INLINE:
        why = f"{arrived:,} steps that all runners sent, and those before"
        yield _in_store("store.samples", arrived * each, why)
    if plan.replay_capacity is not None:
        held = plan.replay_capacity
        if run.total_timesteps is not None:
            held = min(held, run.total_timesteps)
        why = f"{held:,} steps x {each:,} B, each observation once, in arrays that grew, and objects around each step"
        yield _data("replay.episodes", int(held * (REPLAY_SHARE * each + STEP_KEPT)), Place.HOST, why, COLLECTED)
        why = f"{batch:,} transitions drawn, as episodes, as arrays, as tensors"
        yield _data("learner.train batch", int(2 * BATCH_COPIES * batch * each), Place.HOST, why, (Phase.UPDATE,))
        return
    why = f"{batch:,} steps x {each:,} B: as one batch, and shuffled"
    copies = BATCH_COPIES + (SHUFFLED_COPIES if plan.num_epochs > 1 else 0)
    yield _data("learner.train batch", int(copies * batch * each), Place.HOST, why, UPDATED)


def _in_store(name: str, each: int, why: str) -> Item:
    nbytes = int(STORE_GENERATIONS * each)
    return Item(name, nbytes, Place.SHM, why, COLLECTED, error=int(STORE_ERROR * nbytes))


def _data(name: str, nbytes: int, place: Place, why: str, phases: tuple[Phase, ...]) -> Item:
    return Item(name, nbytes, place, why, phases, known=Known.ARITHMETIC, error=int(DATA_ERROR * nbytes))
