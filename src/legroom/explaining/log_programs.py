"""Which program a log is of, and the settings of that program that change its memory.

legroom's own keys are for runs that legroom trains. A log of verl, TRL, Isaac Lab or vLLM gets the settings of that
program instead, by the names that its documentation has; which one it is, paths, loggers and Ray's actors tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from legroom.explaining.frames import Frame
from legroom.explaining.log import Log
from legroom.model.explanation import Advice
from legroom.model.plan import Price
from legroom.units import GIB

BEFORE, AFTER = 8000, 1500  # characters around a message in which a program shows itself
MUCH = 2 * GIB  # held outside PyTorch: CUDA's context, cuBLAS, cuDNN and NCCL together take 0.3 to 1.5 GiB


@dataclass(frozen=True)
class Program:
    """A program, what betrays it, and what helps where its GPU or its host is full.

    Args:
        prefix: what the trainer puts before vLLM's `gpu_memory_utilization`.
        simulates: its environments live on the GPU.
        rehearsed: legroom can run it on a simulated GPU.
    """

    name: str
    pattern: str
    gpu: tuple[Advice, ...] = ()
    host: tuple[Advice, ...] = ()
    prefix: str = ""
    simulates: bool = False
    rehearsed: bool = True


def remedy(knob: str, price: Price, say: str, command: str = "") -> Advice:
    """Return advice about a setting of another program: there is no command of ours for it."""
    return Advice(knob, price, say, command)


OTHERS = remedy("other processes", "free", "end what else is on the GPU, or use another one", "nvidia-smi")
NUM_ENVS = remedy("num_envs", "changes-learning", "fewer environments: simulated on the GPU, each takes some of it")
CAMERAS = remedy("cameras", "changes-learning", "fewer or smaller cameras, where it renders")
HEADLESS = remedy("headless", "free", "no viewer window, where one is open")
RAY_LIMIT = remedy(
    "RAY_memory_usage_threshold", "free", "where Ray begins to kill (0.95 of the node); raising it frees nothing"
)
_SAVING = remedy("checkpoints", "slower", "saved less often, or in shards: a whole state gathers in host memory")
_FEWER_ROLLOUTS = remedy("rollout workers", "slower", "fewer of them on a node: each has its own host memory")
_SLEEP = "the engine gives its memory back while training"

VERL = Program(
    "verl", r"\bverl[/.\-_]|WorkerDict|\bTaskRunner\b|\bAgentLoopWorker|EasyR1",
    gpu=(
        remedy("ppo_micro_batch_size_per_gpu", "slower", "a smaller micro-batch, the same gradient"),
        remedy("enable_gradient_checkpointing=True", "slower", "recompute activations, do not keep them"),
        remedy("param_offload=True", "slower", "weights in host memory between phases; optimizer_offload likewise"),
        remedy("rollout.gpu_memory_utilization", "slower", "a smaller share for the inference engine"),
    ),
    host=(
        remedy("param_offload, optimizer_offload", "free",
               "where True, weights and optimizer state are in host memory; False keeps them on the GPU"),
        _FEWER_ROLLOUTS, _SAVING, RAY_LIMIT,
    ),
    prefix="rollout.",
)  # fmt: skip
OPENRLHF = Program(
    "OpenRLHF", r"openrlhf|ActorModelRayActor|PolicyModelActor|LLMRayActor|CriticModelRayActor",
    gpu=(
        remedy("--micro_train_batch_size", "slower", "a smaller micro-batch, the same gradient"),
        remedy("--gradient_checkpointing", "slower", "recompute activations, do not keep them"),
        remedy("--vllm_enable_sleep", "slower", _SLEEP),
        remedy("--vllm_gpu_memory_utilization", "slower", "a smaller share for the inference engine"),
    ),
    host=(
        remedy("--adam_offload", "free", "where given: the optimizer state is in host memory; without, on the GPU"),
        _FEWER_ROLLOUTS, _SAVING, RAY_LIMIT,
    ),
    prefix="--vllm_",
)  # fmt: skip
TRL = Program(
    "TRL", r"\btrl[/.]|\b(?:GRPO|RLOO|DPO|SFT|PPO|OnlineDPO)(?:Trainer|Config)\b",
    gpu=(
        remedy("per_device_train_batch_size", "slower", "smaller, with more gradient_accumulation_steps"),
        remedy("gradient_checkpointing=True", "slower", "recompute activations, do not keep them"),
        remedy("max_completion_length", "changes-learning", "shorter completions: logits grow with their length"),
    ),
    host=(
        remedy("offload", "free", "DeepSpeed's or FSDP's offload to the CPU keeps weights or optimizer state in host "
               "memory; where it is on, without it they stay on the GPU"),
        _SAVING,
    ),
    prefix="vllm_",
)  # fmt: skip
VLLM = Program(
    "vLLM", r"\bvllm[/.:]|\bVLLM::|VllmWorker|cumem_allocator|EngineCore",
    gpu=(
        remedy("max_num_batched_tokens", "slower", "a smaller batch; max_num_seqs likewise"),
        remedy("gpu_memory_utilization", "slower", "a smaller share leaves more for what is outside it"),
        remedy("tensor_parallel_size", "free", "the weights on more GPUs"),
    ),
    host=(
        remedy("swap_space", "free", "host memory that vLLM keeps for each GPU"),
        remedy("sleep level", "slower", "level 2 drops the weights; level 1 keeps them in host memory"),
    ),
    rehearsed=False,
)  # fmt: skip
SGLANG = Program(
    "SGLang", r"\bsglang[/.:]|mem[-_]fraction[-_]static",
    gpu=(remedy("--mem-fraction-static", "slower", "a smaller share for weights and cache"),
         remedy("--chunked-prefill-size", "slower", "smaller pieces of a prompt at once")),
    rehearsed=False,
)  # fmt: skip
SIMULATOR = Program(
    "a GPU simulator",
    r"mani_?skill|\bsapien\b|\[Genesis\]|genesis/|mujoco_warp|\bnewton[/.]|\bWarp \d|\bwarp/|\bbrax/|mujoco/mjx"
    r"|mujoco_playground|madrona",
    gpu=(HEADLESS, NUM_ENVS, CAMERAS,
         remedy("rollout length", "changes-learning", "shorter, where the rollout is on the GPU too")),
    host=(remedy("num_envs", "changes-learning", "fewer environments"), CAMERAS),
    simulates=True,
)  # fmt: skip
ISAAC = replace(
    SIMULATOR, name="Isaac", rehearsed=False,
    pattern=r"isaac[_-]?(?:lab|gym|sim|orbit|env|training)|\bomni\.(?:isaac|physx|kit)|\[carb\.|\brsl_rl\b|legged_gym",
)  # fmt: skip
RAY_RUNS = Program(
    "Ray RLlib", r"ray/rllib|\b(?:SingleAgent|MultiAgent)?EnvRunner\b|\bRolloutWorker\b",
    host=(
        remedy("num_env_runners", "slower", "fewer env runners: each is a process with its own environments"),
        remedy("num_envs_per_env_runner", "slower", "fewer environments in each"),
        RAY_LIMIT,
    ),
)  # fmt: skip
BASELINES = Program("Stable-Baselines3", r"stable_baselines3|sb3_contrib|rl_zoo3")
_PROGRAMS = (VERL, OPENRLHF, TRL, ISAAC, SIMULATOR, BASELINES, RAY_RUNS, VLLM, SGLANG)
_ENGINES = (VLLM, SGLANG)
# Libraries that take most of the GPU when they start, unless told otherwise: what shows them, and what tells them.
GRABBING = (
    (r"tensorflow/core|tf-keras|import tensorflow",
     remedy("TF_FORCE_GPU_ALLOW_GROWTH=true", "free", "TensorFlow takes what it needs, not all of the GPU at once")),
    (r"\bjax(?:lib)?[/.]|\bxla[/_]",
     remedy("XLA_PYTHON_CLIENT_PREALLOCATE=false", "free", "JAX takes what it needs, not 75 % of the GPU at once")),
)  # fmt: skip


def surroundings(log: Log, place: int) -> str:
    """Return the text in which a program shows itself."""
    return f"{log.around(place, before=BEFORE, after=AFTER)}\n{log.actors}"


def program_of(log: Log, place: int, frames: tuple[Frame, ...] = ()) -> Program | None:
    """Return the program whose failure stands at `place`: an engine that raised it, else what the lines around name."""
    raised = "\n".join(frame.signature for frame in frames[-3:])
    text = surroundings(log, place)
    return next((one for one in _ENGINES if re.search(one.pattern, raised)), None) or next(
        (one for one in _PROGRAMS if re.search(one.pattern, text, re.IGNORECASE if one.simulates else 0)), None
    )


def grabbing(log: Log, place: int) -> tuple[Advice, ...]:
    """Return the settings of libraries in the log that take most of the GPU when they start."""
    text = surroundings(log, place)
    return tuple(setting for pattern, setting in GRABBING if re.search(pattern, text))
