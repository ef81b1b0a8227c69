"""From a draft to a Run: aliases, overrides, known spaces, and every check, with one line for whatever is wrong.

All readers end here, so a wrong value reads the same whether it stood in a run file, a zoo entry, a script or on the
command line. Only the first problem is reported: fixing it often fixes the rest.
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from legroom.backends.base import (
    DEFAULT_BACKEND,
    algorithm_names,
    backend_named,
    backend_names,
    backend_of,
    find_algorithm,
    find_backend,
)
from legroom.errors import BadInput, NotKnownYet
from legroom.model.draft import Draft, Vocabulary, get, made_with, put, stale_keys
from legroom.model.facts import Algorithm
from legroom.model.run import REMOVED_MEMORY, Run
from legroom.model.spaces import DTYPES, DictSpace, leaves
from legroom.named_runs import with_own_spaces
from legroom.reading.hyperchecks import NO_DEFAULT, checked, net_arch_problem, shown
from legroom.reading.known_spaces import find_spaces
from legroom.reading.naming import EXTRACTORS, PARTS, SLIP, did_you_mean, hyperparameter_names, place_of, places
from legroom.reading.user_files import is_file, read_text
from legroom.reading.yamls import Key, parse_value
from legroom.units import LARGEST, parse_size

MOST_PROBLEMS = 50  # of one run; what is wrong in more places is no run
# Keys that hold whole numbers (or lists of them): pydantic would take `true` for 1 there.
WHOLE_NUMBERS = frozenset({
    "n_envs", "envs_per_worker", "frame_stack", "episode_steps", "nbytes", "grid", "every", "keep", "episodes", "shape",
    "n", "nvec", "total_timesteps", "seed", "micro_batch", "max_bytes",
    "legroom", "timeout",
})  # fmt: skip
SIZES = (("memory", "max_bytes"), ("env", "nbytes"))  # bytes, which may be written as 4GiB
# Settings that only a run of the script could tell and that memory does not depend on: dropped without a word.
HARMLESS = frozenset({
    "learning_rate", "clip_range", "clip_range_vf", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm",
    "target_kl", "tau", "verbose", "tensorboard_log", "action_noise", "exploration_fraction", "exploration_final_eps",
    "exploration_initial_eps", "target_entropy", "seed", "device", "stats_window_size", "normalize_advantage",
    "total_timesteps", "every", "episodes", "learning_starts", "activation_fn", "log_std_init", "ortho_init",
    "num_evals", "reward_scaling", "episode_length", "normalize_observations", "action_repeat", "discounting",
    "entropy_cost", "clipping_epsilon", "lr", "lambda_", "clip_param", "entropy_coeff", "vf_loss_coeff", "grad_clip",
})  # fmt: skip

HARMLESS_PARTS = frozenset({("env", "kwargs"), ("env", "id"), ("hyperparams", "replay_buffer_kwargs")})


def is_harmless(key: Key) -> bool:
    """Return whether memory does not depend on the setting."""
    return key[-1] in HARMLESS or key[:2] in HARMLESS_PARTS


def run_from_draft(draft: Draft, overrides: Sequence[tuple[str, str]] = ()) -> Run:
    """Return the Run of a reader's draft, with overrides laid over it. The draft is used up.

    Raises:
        BadInput: something in it cannot be; says where and the way out.
    """
    check = _Check(draft)
    check.keys_are_words()
    check.apply(overrides)
    check.move_aliases()
    check.refuse_unknown()
    check.find_spaces()
    if draft.settle is not None:
        draft.settle(draft, check.given.keys())
    return check.validated()


@dataclass(frozen=True)
class CollectedRun:
    """A run as far as it can be had from a draft in which something may be wrong or not known."""

    run: Run | None  # None where so much is wrong that there is none
    name: str
    lines: dict[Key, int]
    algo_known: bool = True  # False where nobody says the algorithm; the run then has PPO in its place
    # keys whose value in `run` is a default since the real one is invalid or needs execution
    unknown: frozenset[Key] = frozenset()
    problems: tuple[BadInput, ...] = ()  # what is wrong, each at its line


def collected_run(draft: Draft, overrides: Sequence[tuple[str, str]] = ()) -> CollectedRun:
    """Return the run of a draft, with every wrong value replaced by the default and written down. Uses the draft up.

    Raises:
        BadInput: an override is wrong.
    """
    check = _Check(draft)
    problems: list[BadInput] = []
    unknown: set[Key] = set()
    algo_known = True
    try:
        check.keys_are_words()
        check.apply(overrides)
        check.move_aliases()
        unknown |= {
            key for key in draft.unknown if not any(key[: len(a)] == a or a[: len(key)] == key for a in check.given)
        }
        unknown |= {key for key in draft.doubted if key not in check.given}
        if draft.not_followed is not None:
            unknown |= {(name,) for name in ("env", "policy", "hyperparams", "eval", "checkpoint", "total_timesteps")}
        check.find_spaces()
        if draft.settle is not None:
            algo_known = bool(draft.data.get("algo"))
            if algo_known and draft.finish is not None:
                draft.finish(draft, check.given.keys())
            draft.data.setdefault("algo", "PPO")
    except KeyProblem as error:
        return CollectedRun(None, draft.name, dict(draft.lines), problems=(error,))
    for _ in range(MOST_PROBLEMS):
        try:
            run = check.validated()
        except KeyProblem as error:
            problems.append(error)
            if not _removed(draft.data, error.key):
                break
            unknown.add(error.key)
        else:
            return CollectedRun(run, draft.name, dict(draft.lines), algo_known, frozenset(unknown), tuple(problems))
    return CollectedRun(None, draft.name, dict(draft.lines), algo_known, frozenset(unknown), tuple(problems))


def _removed(data: dict[str, Any], key: Key) -> bool:
    """Take the nested `key` out of `data`; return whether it was there and the run can do without it."""
    inside = get(data, key[:-1]) if key else None
    if key in (("algo",), ("env",)) or not isinstance(inside, dict) or key[-1] not in inside:
        return len(key) > 1 and _removed(data, key[:-1])
    del inside[key[-1]]
    return True


class KeyProblem(BadInput):
    """What is wrong with one key of the file; `key` is its path, empty where the whole file is meant."""

    def __init__(self, key: Key, message: str, *, hint: str, path: str | None, line: int | None) -> None:
        super().__init__(message, hint=hint, path=path, line=line)
        self.key = key


class _Check:
    """The steps from a draft to a Run, in order; each refuses what the next could not work with."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.data = draft, draft.data
        self.given: dict[Key, str] = {}  # key paths that overrides have set -> the override as text

    # -- where things are ------------------------------------------------------------------------------------------

    def fail(self, key: Key, message: str, hint: str = "") -> NoReturn:
        """Raise BadInput for `key`: at its line, or naming the override that set it."""
        for depth in range(len(key), 0, -1):
            if key[:depth] in self.given:
                raise BadInput(f"{self.given[key[:depth]]}: {message}", hint=hint)
        for at, text in self.given.items():
            if at[: len(key)] == key and len(key) > 0:
                raise BadInput(f"{text}: {message}", hint=hint)
        raise KeyProblem(key, message, path=self.draft.path, line=self._line(key), hint=hint)

    def _line(self, key: Key) -> int | None:
        for depth in range(len(key), 0, -1):
            if key[:depth] in self.draft.lines:
                return self.draft.lines[key[:depth]]
        return min(self.draft.lines.values(), default=None)

    def part(self, *key: str | int) -> dict[str, Any]:
        value = get(self.data, key)
        return value if isinstance(value, dict) else {}

    @property
    def backend(self) -> str:
        backend = self.data.get("backend", DEFAULT_BACKEND)
        return backend if isinstance(backend, str) else DEFAULT_BACKEND

    @property
    def words(self) -> Vocabulary:
        library = find_backend(self.backend)
        return Vocabulary() if library is None else library.reader.vocabulary

    # -- steps -----------------------------------------------------------------------------------------------------

    def keys_are_words(self) -> None:
        for key in ((), *(k for k in PARTS if k), ("hyperparams",)):
            for name in self.part(*key):
                if not isinstance(name, str):
                    self.fail((*key, name), f"{_dotted((*key, name))}: a key must be a word", "quote it if it is one")

    def apply(self, overrides: Sequence[tuple[str, str]]) -> None:
        parsed = [(name, parse_value(text, what=f"{name}={text}"), f"{name}={text}") for name, text in overrides]
        # backend and algorithm decide what the other names mean, so they come first
        parsed.sort(key=lambda item: {"backend": 0, "algo": 1, "algorithm": 1}.get(item[0], 2))
        before = made_with(self.part("env"))
        for name, value, text in parsed:
            algo = self.data.get("algo")
            key = place_of(name, self.backend, algo if isinstance(algo, str) else None)
            if isinstance(self.data.get("env"), str):
                self.data["env"] = {"id": self.data["env"]}
            if isinstance(self.data.get("policy"), str):
                self.data["policy"] = {"name": self.data["policy"]}
            self.draft.put(key, value)
            self.given[key] = text
        for stale in stale_keys(before, self.part("env")):
            if not any(key[:2] == ("env", stale) for key in self.given):
                self.part("env").pop(stale, None)

    def move_aliases(self) -> None:
        for key, inner in (("env", "id"), ("policy", "name")):
            if isinstance(self.data.get(key), str):
                self.data[key] = {inner: self.data[key]}
        for source, target in {**self.words.moved, **EXTRACTORS}.items():
            part: dict[Any, Any] = self.part(*source[:-1])
            if source[-1] not in part or source == target:
                continue
            value = part.pop(source[-1])
            if get(self.data, target) is not None:
                if target in self.given:
                    continue
                if not (isinstance(value, dict) and isinstance(get(self.data, target), dict)):
                    self.fail(source, f"{_dotted(source)} and {_dotted(target)} are both given", "keep one of them")
                value = {**value, **get(self.data, target)}
            if len(target) > 1 and not isinstance(self.data.get(str(target[0])), dict | None):
                self.fail((target[0],), f"{target[0]} must be a mapping, got {shown(self.data[str(target[0])])}")
            put(self.data, target, value)
            if source in self.draft.lines:
                self.draft.lines[target] = self.draft.lines[source]
            if source in self.given:
                self.given[target] = self.given.pop(source)
        wrappers = self.part("env").get("wrappers")
        if isinstance(wrappers, str | dict):
            self.data["env"]["wrappers"] = [wrappers]

    def refuse_unknown(self) -> None:
        """Refuse what only running the script could tell, all of it at once, with the options that would give it."""
        if self.draft.not_followed is not None:
            file, line, text, because = self.draft.not_followed
            elsewhere = "" if file in (None, self.draft.path) else f"{file}:{line}: "
            message = f"{elsewhere}{text} {because}: its settings are known only when the script runs"
            raise NotKnownYet(message, path=self.draft.path, line=None if elsewhere else line)
        missing = {
            key: where
            for key, where in self.draft.unknown.items()
            if not is_harmless(key) and not any(key[: len(at)] == at or at[: len(key)] == key for at in self.given)
        }
        if not missing:
            return
        ways = [f"--set {_dotted(key)}=..." for key in missing]
        env = self.part("env")
        if self.draft.settle is None and env.get("id") is None and env.get("spaces") is None:
            ways.append(GIVE_SPACES)
        line, text = next(iter(missing.values()))
        if len(missing) == 1:
            message = f"{_dotted(next(iter(missing)))} ({text}) is known only when the script runs"
        else:
            named = [f"{_dotted(key)} ({_at(where)})" for key, where in missing.items()]
            message = f"{len(missing)} settings are known only when the script runs: {', '.join(named)}"
        hint = f"add {' '.join(ways)}, or --like RUN, which fills what is missing"
        raise NotKnownYet(message, path=self.draft.path, line=line, hint=hint)

    def find_spaces(self) -> None:
        env = self.part("env")
        env_id, wrappers = env.get("id"), env.get("wrappers", ())
        if not isinstance(env_id, str) or env.get("spaces") is not None or not isinstance(wrappers, list | tuple):
            return
        kwargs = env.get("kwargs")
        library = find_backend(self.backend)
        own = library.own_spaces if library is not None else None
        if own is not None:
            known = own.get(env_id)
        else:
            known = find_spaces(env_id, wrappers, kwargs if isinstance(kwargs, dict) else {})
        if known is None or _has_text(known.observation):
            return
        env["spaces"] = {"observation": known.observation, "action": known.action}
        if known.episode_steps is not None:
            env.setdefault("episode_steps", known.episode_steps)

    def validated(self) -> Run:
        """Return the Run; may be asked again once a key it refused is gone."""
        self.algorithm()
        self.hyperparams()
        self.layers()
        return self.run()

    def algorithm(self) -> None:
        named, algo = self.data.get("backend", DEFAULT_BACKEND), self.data.get("algo")
        if named not in backend_names():
            self.fail(("backend",), f"backend: {shown(named)} is not known", f"one of {', '.join(backend_names())}")
        if not isinstance(algo, str):
            return  # pydantic says it better
        found = find_algorithm(self.backend, algo)
        if found is None and ":" in algo:
            found = _base_algorithm(self.backend, algo, self.draft.path)
            self.data["algo_class"] = algo
        if found is None:
            hint = did_you_mean(algo, algorithm_names(self.backend))
            self.fail(("algo",), f"unknown algorithm {shown(algo)} for backend {self.backend}", hint)
        self.data["algo"] = found.name

    def hyperparams(self) -> None:
        hyper = self.data.get("hyperparams")
        algo = self.data.get("algo")
        if not isinstance(hyper, dict) or not isinstance(algo, str):
            return
        algorithm = find_algorithm(self.backend, algo)
        assert algorithm is not None  # `algorithm` has refused others
        refused = backend_named(self.backend).reader.translate_hyperparams(self.data, self.given)
        for name, problem in refused.items():
            self.fail(("hyperparams", name), f"{name} {problem}")
        known = hyperparameter_names(self.backend)
        for name, value in list(hyper.items()):
            key: Key = ("hyperparams", name)
            if name not in known:
                self._unknown_key(key, sorted(algorithm.keys) + sorted(known - algorithm.keys))
            default = algorithm.defaults.get(name, NO_DEFAULT)
            hyper[name], problem = checked(name, value, default, self.words)
            if problem:
                self.fail(key, f"{_dotted(key)} {problem}")

    def layers(self) -> None:
        for name in self.words.layers:
            key: Key = ("policy", "kwargs", name)
            value = get(self.data, key)
            problem = "" if value is None else net_arch_problem(value)
            if problem:
                self.fail(key, f"{_dotted(key)} {problem}")

    def run(self) -> Run:
        self._no_truth_for_numbers(self.data, ())
        self._sizes_in_words()
        try:
            run = Run.model_validate({**self.data, "name": self.draft.name, "source": self.draft.path})
        except ValueError as error:  # pydantic's ValidationError, without importing pydantic before it is needed
            self._refuse(error)
        except RecursionError:
            raise BadInput("nested too deeply", path=self.draft.path, hint="run files are flat") from None
        run = with_own_spaces(run)
        self._refuse_absurd(run)
        return run

    # -- what is wrong ---------------------------------------------------------------------------------------------

    def _sizes_in_words(self) -> None:
        """Take `4GiB` where bytes are meant."""
        for part, name in SIZES:
            value = self.part(part).get(name)
            if isinstance(value, str):
                try:
                    self.part(part)[name] = parse_size(value, what=f"{part}.{name}")
                except BadInput as error:
                    self.fail((part, name), error.message, error.hint)

    def _no_truth_for_numbers(self, value: Any, key: Key) -> None:
        if key[:1] == ("hyperparams",) or key[:2] in (("env", "kwargs"), ("policy", "kwargs")) or len(key) > 12:
            return
        if isinstance(value, dict):
            for name, child in value.items():
                self._no_truth_for_numbers(child, (*key, name))
        elif key and key[-1] in WHOLE_NUMBERS:
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, bool):
                    self.fail(key, f"{_dotted(key)} must be a whole number, got {shown(item)}")

    def _refuse(self, error: Any) -> NoReturn:
        problems = error.errors(include_url=False, include_context=True)
        # a misspelt key also makes the right one missing; the first is the cause
        problems.sort(key=lambda p: {_EXTRA: 0, "missing": 2}.get(p["type"], 1))
        problem = problems[0]
        key = self._key(problem["loc"], last=problem["type"] in ("missing", _EXTRA))
        name, value = _dotted(key), problem.get("input")
        context = problem.get("ctx", {})
        match problem["type"]:
            case "unexpected_keyword_argument":
                self._unknown_key(key, sorted(PARTS.get(key[:-1], ())))
            case "missing":
                self.fail(key[:-1], f"{name} is missing", _HOW_TO_GIVE.get(key, f"add it, or --set {name}=..."))
            case "greater_than_equal":
                self.fail(key, f"{name} must be at least {context['ge']}, got {shown(value)}")
            case "less_than_equal":
                most = "2**63" if context["le"] == LARGEST else context["le"]
                self.fail(key, f"{name} must be at most {most}, got {shown(value)}")
            case "literal_error" if key and key[-1] == "dtype":
                self.fail(key, f"{name}: unknown dtype {shown(value)}", did_you_mean(value, DTYPES))
            case "literal_error":
                allowed = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
                hint = f"one of {', '.join(allowed)}"
                self.fail(key, f"{name}: {shown(value)} is not known", hint)
            case "union_tag_invalid":
                hint = did_you_mean(context["tag"], ("box", "discrete", "multidiscrete", "multibinary", "dict"))
                self.fail(key, f"{name}: unknown type {shown(context['tag'])}", hint)
            case "union_tag_not_found":
                hint = "type: box, discrete, multidiscrete, multibinary or dict"
                self.fail(key, f"{name} has no type", f"write {hint}")
            case "value_error":
                self.fail(key, f"{name}: {context.get('error', problem['msg'])}")
            case kind if kind.startswith(("int_", "finite_")):
                self.fail(key, f"{name} must be a whole number, got {shown(value)}")
            case "dataclass_type" | "dict_type":
                self.fail(key, f"{name} must be a mapping, got {shown(value)}", f"write {name}: {{key: value}}")
        what = problem["msg"][:1].lower() + problem["msg"][1:]
        self.fail(key, f"{name}: {what}, got {shown(value)}", "'legroom schema' prints what it may be")

    def _key(self, loc: Sequence[str | int], *, last: bool) -> Key:
        """Return pydantic's location as a key path of the file: without the tags of unions, which no file holds."""
        key: list[str | int] = []
        at: Any = self.data
        for i, part in enumerate(loc):
            if _has(at, part):
                at = at[part]
            elif not (last and i == len(loc) - 1):
                continue
            key.append(part)
        return tuple(key)

    def _unknown_key(self, key: Key, known: Sequence[str]) -> NoReturn:
        name = key[-1]
        if key[:-1] == ("memory",) and name in REMOVED_MEMORY:
            self.fail(key, f"memory.{name} was removed: it saved next to nothing", "delete the line")
        where = _dotted(key[:-1]) or "a run file"
        algo = self.data.get("algo")
        elsewhere = places(self.backend, algo if isinstance(algo, str) else None)
        near = difflib.get_close_matches(str(name), elsewhere, cutoff=SLIP)
        hint = did_you_mean(name, [*known, *near], "'legroom schema'") if known else "remove it"
        if (place := elsewhere.get(str(name))) not in (None, key) and str(name) not in known:
            hint = f"it belongs to {_dotted(place)}"
        self.fail(key, f"unknown key {shown(name)} in {where}", hint)

    def _refuse_absurd(self, run: Run) -> None:
        """Refuse sizes that no address space holds, so that nobody has to multiply with care later on."""
        if run.env.spaces is None:
            return
        for side in ("observation", "action"):
            space = getattr(run.env.spaces, side)
            if isinstance(space, DictSpace) and any(isinstance(s, DictSpace) for s in space.spaces.values()):
                self.fail(("env", "spaces", side), f"env.spaces.{side}: nested dicts are not supported", "flatten it")
            total = sum(math.prod(leaf.shape) * DTYPES[leaf.dtype] for leaf in leaves(space).values())
            if total > LARGEST:
                self.fail(("env", "spaces", side), f"env.spaces.{side} is over 2**63 bytes", "check its shape")
        storage = backend_of(run).predictor.storage(run)
        rows, nbytes = storage.rows(run.env.n_envs), storage.observation.nbytes
        if rows * run.env.n_envs * nbytes > LARGEST:
            key: Key = ("hyperparams", "n_steps" if storage.kind == "rollout" else "buffer_size")
            size = f"{rows:.3g} rows x {run.env.n_envs:.3g} envs x {nbytes:.3g} B"
            self.fail(key, f"{size} of observations is over 2**63 bytes", "check n_steps, buffer_size and n_envs")


GIVE_SPACES = "--set env.spaces='{observation: ..., action: ...}'"


def _at(where: tuple[int | None, str]) -> str:
    """Return the line and the source of what is not known."""
    line, text = where
    return text if line is None else f"line {line}: {text}"


_EXTRA = "unexpected_keyword_argument"  # pydantic's word for an unknown key of a dataclass
_HOW_TO_GIVE: dict[Key, str] = {
    ("algo",): "add algo: PPO, or --set algo=PPO",
    ("env",): "add env: {id: ...}, or --set env.id=...",
}


def _has(container: Any, part: str | int) -> bool:
    if isinstance(container, dict):
        return part in container
    return isinstance(container, list | tuple) and isinstance(part, int) and part < len(container)


def _dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)


def _has_text(space: dict[str, Any]) -> bool:
    return space["type"] == "text" or any(_has_text(sub) for sub in space.get("spaces", {}).values())


def _base_algorithm(backend: str, name: str, path: str | None) -> Algorithm | None:
    """Return the algorithm that a user's `module:Class` derives from; None where its source is not found or says not.

    Its hyperparameters, buffers and environments are those of that one; what more it does is seen only where it runs.

    Args:
        path: the run file; the module is looked for beside it and in the working directory.
    """
    from legroom.reading.interpreter.script import read_script

    module, _, wanted = name.partition(":")
    relative = Path(module) if module.endswith(".py") else Path(*module.split(".")).with_suffix(".py")
    folders = [Path(path).parent] if path else []
    file = next((file for folder in (*folders, Path()) if is_file(file := folder / relative)), None)
    try:
        script = None if file is None else read_script(read_text(str(file)), str(file))
    except BadInput:
        return None
    found = script.defined_as(wanted) if script is not None else None
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    bases = sorted(base.rpartition(".")[2] for base in found[0].bases(found[1]))
    return next((known for base in bases if (known := find_algorithm(backend, base)) is not None), None)
