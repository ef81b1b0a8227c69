"""What a target names: an existing file, a named run of a workload, or an algorithm and an environment.

Light, since a prediction of a named run needs no more of reading than this.
"""

from __future__ import annotations

import difflib

from legroom.backends.base import DEFAULT_BACKEND, find_algorithm
from legroom.errors import BadInput
from legroom.model.draft import Draft
from legroom.named_runs import find_workload, run_names, workloads
from legroom.reading.user_files import is_directory, is_file, read_text
from legroom.reading.yamls import parse_yaml, run_file_draft

_FILE_SUFFIXES = (".yaml", ".yml", ".py", ".json")


def named_drafts(target: str, *, single: bool) -> list[Draft]:
    """Return the drafts of a named run or workload; none when `target` is a file or no such run."""
    if split_target(target)[0] is not None:
        return []
    workload, _, run = target.partition(":")
    found = find_workload(workload)
    if found is None:
        return []
    files = found.run_files()
    names = [run] if run else [found.default] if single else list(files)
    drafts = []
    for name in names:
        if name in files:
            path = str(files[name])
            drafts.append(run_file_draft(*parse_yaml(read_text(path), path), path))
            drafts[-1].name = f"{workload}:{name}"
    return drafts


def is_checked(target: str) -> bool:
    """Return whether the runs of the workload that `target` names are known to be valid."""
    found = find_workload(target.partition(":")[0])
    return found is not None and found.checked


def split_target(target: str) -> tuple[str | None, str | None]:
    """Return the existing file that `target` starts with, and the entry after the colon."""
    if is_file(target):
        return target, None
    at = target.find(":")
    while at > 0:
        if is_file(target[:at]):
            return target[:at], target[at + 1 :] or None
        at = target.find(":", at + 1)
    return None, None


def is_algorithm(text: str) -> bool:
    """Return whether `text` names an algorithm, and no file or folder of that name is here."""
    return find_algorithm(DEFAULT_BACKEND, text) is not None and not is_file(text) and not is_directory(text)


def spoken_draft(target: str) -> Draft | None:
    """Return the run that an algorithm and an environment's id are; None where `target` is something else.

    Raises:
        BadInput: there is no environment.
    """
    words = target.split()
    if not words or len(words) > 2 or not is_algorithm(words[0]):
        return None
    found = find_algorithm(DEFAULT_BACKEND, words[0])
    assert found is not None
    if len(words) == 1:
        raise BadInput("environment missing", hint=f"legroom predict {found.name} CartPole-v1")
    draft = Draft(f"{found.name}-{words[1].rpartition('/')[2]}", None)
    draft.put(("algo",), found.name)
    draft.put(("env", "id"), words[1])
    from legroom.reading.known_spaces import find_spaces

    spaces = find_spaces(words[1])
    kind = spaces.observation.get("type") if spaces is not None else None
    shape = spaces.observation.get("shape", ()) if spaces is not None else ()
    if kind == "dict":
        draft.put(("policy", "name"), "MultiInputPolicy")
    elif len(shape) == 3:
        draft.put(("policy", "name"), "CnnPolicy")
    return draft


def no_such_run(target: str) -> BadInput:
    """Return the error for a target that is neither file nor named run, with the nearest name of that kind."""
    head, _, run = target.partition(":")
    if is_directory(target):
        return BadInput("is a directory", path=target, hint="name a run file in it")
    looks_like_file = "/" in target or "\\" in target or head.lower().endswith(_FILE_SUFFIXES)
    workload = find_workload(head)
    if workload is None and looks_like_file:
        try:
            read_text(head if head.lower().endswith(_FILE_SUFFIXES) else target)
        except BadInput as error:
            return error
    names = run_names()
    if workload is not None:
        names = [name for name in names if name.startswith(f"{head}:")]
    bare = [w.name for w in workloads()]
    if not bare:  # a source checkout that was installed before it had entry points for them
        return BadInput(f"no file and no named run {target!r}", hint="no workload is registered: reinstall legroom")
    close = difflib.get_close_matches(target.lower(), names if run else [*bare, *names], n=1, cutoff=0.5)
    listed = ", ".join(names if workload is not None else bare)
    hint = f"did you mean {close[0]!r}? there is {listed}" if close else f"there is {listed}, or give a file"
    return BadInput(f"no file and no named run {target!r}", hint=hint)
