"""If these fail, workers or large observations go missing from the bill."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.buffers import replay_items, rollout_items
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.network import network_items
from legroom.backends.sb3.bill.processes import envs_items, evaluation_items, runtime_items
from legroom.backends.sb3.stored import bounds_nbytes
from legroom.model.evidence import EnvMemory, Evidence, NetTrace
from legroom.model.footprint import Footprint, Known, Phase, Place
from legroom.model.machine import Machine
from legroom.model.run import Run

PARTS = (runtime_items, envs_items, rollout_items, replay_items, network_items, evaluation_items)
BASE = BaseFigures(
    trainer=300, worker=150, light_worker=20, errors={"trainer": 9, "worker": 3}, known=Known.MEASURED,
    fork_worker=3, fork_shared=60, helpers=12,
)  # fmt: skip
MACHINE = Machine(ram=1, limit=None, available=1, swap=0, shm=0)


def make(algo="PPO", shape=(4,), dtype="float32", policy="MlpPolicy", run=None, hyperparams=None, **env):
    observation = {"type": "box", "shape": list(shape), "dtype": dtype}
    spaces = {"observation": observation, "action": {"type": "discrete", "n": 2}}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"spaces": spaces, **env},
            "policy": {"name": policy},
            "hyperparams": hyperparams or {},
            **(run or {}),
        }
    )


def bill(run, **evidence):
    evidence = Evidence(MACHINE, "cpu", BASE, net=estimate_net(run, "cpu"), **evidence)
    return Footprint("x", tuple(item for part in PARTS for item in part(run, evidence)), "cpu")


def named(footprint):
    return {item.name: item for item in footprint.items}


def test_workers_cost_what_their_kind_costs():
    forkserver = named(bill(make(n_envs=4, workers="subproc")))
    assert (forkserver["runtime.worker imports"].nbytes, forkserver["runtime.worker imports"].count) == (150, 4)
    assert forkserver["runtime.worker imports"].place is Place.WORKER
    assert forkserver["runtime.multiprocessing"].nbytes == 12
    fork = named(bill(make(n_envs=4, workers="subproc", start_method="fork")))
    assert fork["runtime.worker imports"].nbytes == 3
    assert fork["runtime.shared by workers"].nbytes == 60
    assert named(bill(make(n_envs=4, workers="light")))["runtime.worker imports"].nbytes == 20
    shared = named(bill(make(n_envs=4, workers="light", envs_per_worker=3)))
    assert shared["runtime.worker imports"].count == 2
    assert "runtime.worker imports" not in named(bill(make(n_envs=4)))


def test_a_box_holds_its_bounds():
    # 100 numbers: low and high in float32, two bool masks
    assert bounds_nbytes(make(shape=(100,)).env.spaces.observation) == 100 * (4 + 4 + 1 + 1)


def test_instances_are_counted_where_they_live():
    inside = named(bill(make(n_envs=3, nbytes=1000)))["env.instance"]
    assert (inside.total, inside.place) == (3000, Place.HOST)
    measured = named(bill(make(n_envs=3, workers="subproc"), env=EnvMemory(0, first=500, more=500, mapped=0)))[
        "env.instance"
    ]
    assert (measured.total, measured.place, measured.known) == (1500, Place.WORKER, Known.MEASURED)


def test_frame_stack_and_normalisation_are_items():
    stacked = named(bill(make(shape=(10, 10, 3), dtype="uint8", n_envs=2, frame_stack=4, policy="MlpPolicy")))
    assert stacked["env.frame stack"].nbytes == 2 * 2 * 300 * 4
    normal = named(bill(make(shape=(100,), n_envs=2, normalize=True)))
    assert normal["env.normalize"].nbytes == 2 * 8 * 100 + 3 * 8 * 2 * 100 + 2 * 400


def test_evaluation_workers_come_on_top():
    plain, with_eval = bill(make()), bill(make(run={"eval": {"n_envs": 2, "workers": "subproc"}}))
    assert named(with_eval)["eval.worker imports"].count == 2
    assert with_eval.host.nbytes >= plain.host.nbytes + 2 * 150 + 12


def test_gradients_do_not_exist_while_the_only_rollout_is_flattened():
    once = make(hyperparams={"n_steps": 10}, run={"total_timesteps": 10})
    twice = make(hyperparams={"n_steps": 10}, run={"total_timesteps": 20})
    assert Phase.COLLECT not in named(bill(once))["network.gradients"].phases
    assert Phase.COLLECT in named(bill(twice))["network.gradients"].phases


def test_on_a_gpu_the_host_has_no_networks():
    run = make()
    evidence = Evidence(MACHINE, "cuda", BASE, net=estimate_net(run, "cuda"))
    names = {item.name for item in network_items(run, evidence)}
    assert names == {"update.minibatch copies"}


@given(
    algo=st.sampled_from(["PPO", "A2C", "DQN"]),
    envs=st.integers(1, 8),
    more=st.integers(0, 8),
    width=st.integers(1, 2000),
    workers=st.sampled_from(["dummy", "subproc", "light"]),
    normalize=st.booleans(),
)
def test_more_environments_never_need_less(algo, envs, more, width, workers, normalize):
    # 840 divides by every number of environments up to 8: a ring that is cut shorter by rounding may need less
    hyperparams = {"buffer_size": 840_000} if algo == "DQN" else {}

    def peak(n_envs):
        env = {"n_envs": n_envs, "workers": workers, "normalize": normalize}
        return bill(make(algo, (width,), hyperparams=hyperparams, **env)).host

    few, many = peak(envs), peak(min(envs + more, 8))
    assert many.nbytes >= few.nbytes
    assert few.low <= few.nbytes <= few.high


def test_evaluation_in_the_same_process_imports_nothing_again():
    env = EnvMemory(imports=100, first=50, more=5, mapped=70)
    both = named(bill(make(n_envs=2, run={"eval": {"n_envs": 1}}), env=env))
    assert (both["env.imports"].nbytes, both["env.mapped files"].nbytes) == (100, 70)
    assert (both["eval.imports"].nbytes, both["eval.mapped files"].nbytes, both["eval.instance"].nbytes) == (0, 0, 5)
    workers = named(bill(make(n_envs=2, workers="subproc", run={"eval": {"n_envs": 1}}), env=env))
    assert (workers["eval.imports"].nbytes, workers["eval.mapped files"].nbytes) == (100, 0)


def test_an_algorithm_without_gradients_has_no_optimizer_to_import():
    base = replace(BASE, without_updates=200)
    items = [
        item for item in runtime_items(make(algo="ARS"), Evidence(MACHINE, "cpu", base)) if item.place is Place.HOST
    ]
    assert [item.nbytes for item in items] == [200]
    (item,) = runtime_items(make(algo="PPO"), Evidence(MACHINE, "cpu", base))
    assert item.nbytes == 300


def test_legroom_train_does_without_torchs_compiler_and_a_script_does_not():
    base = replace(BASE, without_compiler=230)
    script, by_legroom = (
        next(iter(runtime_items(make().replace(source=source), Evidence(MACHINE, "cpu", base))))
        for source in ("train.py", "run.yaml")
    )
    assert (script.nbytes, by_legroom.nbytes) == (300, 230)
    assert "without torch's compiler" in by_legroom.why
    compiled = Evidence(MACHINE, "cpu", base, net=NetTrace("cpu", 0, 0, 0, 0, 0, compiles=True))
    assert next(iter(runtime_items(make().replace(source="run.yaml"), compiled))).nbytes == 300


def test_candidates_of_ars_are_on_the_bill():
    items = named(bill(make(algo="ARS", hyperparams={"n_delta": 4})))
    # 6 arrays of 4 directions: 4 x 64 + 64, 64 x 64 + 64, 64 x 2 + 2 parameters of 4 bytes
    assert items["update.candidates"].nbytes == 6 * 4 * 4 * (4 * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2)
    assert "update.candidates" not in named(bill(make()))
