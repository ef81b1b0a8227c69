"""LR053: loading executes code; files from elsewhere should not be loaded that way."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from legroom.checking.rule_helpers import per_script
from legroom.model.finding import Severity
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import options, settings_of, text_of
from legroom.reading.interpreter.script import Script, argument
from legroom.reading.source import walk

_PICKLES = frozenset({"pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "dill.load", "dill.loads",
                      "joblib.load", "_pickle.load"})  # fmt: skip
_DOWNLOADS = frozenset({
    "huggingface_sb3.load_from_hub", "huggingface_hub.hf_hub_download", "huggingface_hub.snapshot_download",
    "urllib.request.urlretrieve", "urllib.request.urlopen", "requests.get", "gdown.download", "wget.download",
    "wandb.restore", "torch.hub.download_url_to_file", "torch.hub.load_state_dict_from_url", "httpx.get",
})  # fmt: skip
DEEPEST = 6


# What a call loads with, and the file, if loading can execute code.
Loading = Callable[[Script, ast.Call], tuple[str, ast.expr | None] | None]


def look(script: Script) -> Iterable[Found]:
    return untrusted_loads(script, _loading)


def untrusted_loads(script: Script, loading: Loading) -> Iterator[Found]:
    """Yield the calls that load a file from elsewhere in a way that can execute code."""
    for call in script.calls:
        found = loading(script, call)
        if found is None:
            continue
        what, file = found
        source = _from_elsewhere(script, file) or _downloaded(script, file)
        if what == "torch.load":
            yield from _torch(call, source)
        elif source is not None:
            yield Found(
                f"{what} executes code from the file, and the file comes from {source}",
                "load weights only (safetensors, torch.load(weights_only=True)), or check where the file is from",
                call.lineno, severity="info" if "command line" in source and _saves(script) else None,
            )  # fmt: skip


def _saves(script: Script) -> bool:
    """Return whether the script saves models itself: then a path on the command line most likely resumes its own."""
    for call in script.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("save", "learn", "save_replay_buffer"):
            return True
        if script.qualified(call.func) == "torch.save":
            return True
    return False


def _downloaded(script: Script, node: ast.expr | None) -> str | None:
    """Return the download that wrote the very path that is loaded."""
    path = text_of(script, node)
    for call in script.calls if path is not None else ():
        name = script.qualified(call.func)
        if name in _DOWNLOADS:
            written = [text_of(script, a) for a in (*call.args[1:], *(k.value for k in call.keywords))]
            if path in written or f"{path}.zip" in written:
                return f"a download ({str(name).rpartition('.')[2]})"
    return None


def _loading(script: Script, call: ast.Call) -> tuple[str, ast.expr | None] | None:
    name = script.qualified(call.func)
    if name in _PICKLES:
        return str(name), argument(call, "file", 0)
    if name == "torch.load":
        return "torch.load", argument(call, "f", 0)
    if name == "numpy.load":
        allowed = argument(call, "allow_pickle", 2)
        if isinstance(allowed, ast.Constant) and allowed.value is True:
            return "numpy.load(allow_pickle=True)", argument(call, "file", 0)
        return None
    return None


def _torch(call: ast.Call, source: str | None) -> Iterator[Found]:
    """Yield what is wrong with a call of torch.load; without weights_only it is safe since torch 2.6."""
    only = argument(call, "weights_only")
    if isinstance(only, ast.Constant) and only.value is False:
        severity: Severity = "warning" if source is not None else "info"
        where = f", and the file comes from {source}" if source is not None else "; load only files you made yourself"
        yield Found(
            f"torch.load(weights_only=False) executes code from the file{where}",
            "torch.load(..., weights_only=True)", call.lineno, severity=severity,
        )  # fmt: skip


def _from_elsewhere(script: Script, node: ast.expr | None, depth: int = 0) -> str | None:
    """Return where a file that the script did not make comes from; None where nothing says so."""
    if node is None or depth > DEEPEST:
        return None
    match node:
        case ast.Constant(value=str(text)) if text.startswith(("http://", "https://")):
            return "a URL"
        case ast.Call(func=function) if (name := script.qualified(function)) in _DOWNLOADS:
            return f"a download ({str(name).rpartition('.')[2]})"
        case ast.Call(func=function) if script.qualified(function) == "input":
            return "input()"
        case ast.Attribute() if script.qualified(node) == "sys.argv":
            return "the command line"
        case ast.Attribute() if (option := _option(script, node)) is not None:
            return option
    found = (_from_elsewhere(other, part, depth + 1) for other, part in _made_of(script, node))
    return next(filter(None, found), None)


def _made_of(script: Script, node: ast.expr) -> Iterator[tuple[Script, ast.expr | None]]:
    """Yield the expressions that a value is made of: what a name is bound to, what a function returns, or the parts."""
    definition = script.definition(node.func) if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Name):
        bindings = script.scopes.reaching(node)
        yield from ((script, b.value) for b in bindings if b.kind in ("assign", "with", "augmented"))
    elif definition is not None and isinstance(definition[1], ast.FunctionDef):
        yield from ((definition[0], part.value) for part in walk(definition[1]) if isinstance(part, ast.Return))
    else:
        yield from ((script, child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _option(script: Script, node: ast.Attribute) -> str | None:
    """`args.model_path`, if a parser has that option and gives it no default: then the user names the file."""
    settings = settings_of(script, node.value)
    default = settings.fields.get(node.attr) if settings is not None else None
    if settings is None or default is None or node.attr not in dict(options(settings.script)):
        return None
    unset = isinstance(default, ast.Constant) and default.value in (None, "")
    return f"the command line ({_flag(settings.script, node.attr)})" if unset else None


def _flag(script: Script, name: str) -> str:
    """Return the option as the parser has it: `--model_path`."""
    given = (arg.value for call in script.calls for arg in call.args if isinstance(arg, ast.Constant))
    flags = (flag for flag in given if isinstance(flag, str) and flag.startswith("-"))
    return next((flag for flag in flags if flag.lstrip("-").replace("-", "_") == name), name)


RULE = Rule(
    code="LR053",
    name="untrusted-load",
    severity="warning",
    what="A model, buffer or pickle is loaded from a file that comes from elsewhere.",
    why=(
        "PPO.load, load_replay_buffer, VecNormalize.load and pickle.load execute code that the file holds (cloudpickle "
        "in the archive's data). A downloaded model runs as you."
    ),
    example='path = load_from_hub("someone/ppo-agent", "ppo.zip")\nmodel = PPO.load(path)\n',
    remedy="Load weights only: model.set_parameters from safetensors or torch.load(weights_only=True).",
    look=per_script(look),
)
