"""A run without a file: an algorithm and the id of an environment, `PPO CartPole-v1`.

All else has the library's defaults, and options change it. The policy is the one that SB3 has for such observations.
"""

from __future__ import annotations

from legroom.backends.base import DEFAULT_BACKEND, find_algorithm
from legroom.errors import BadInput
from legroom.model.draft import Draft
from legroom.reading.known_spaces import find_spaces
from legroom.reading.user_files import is_directory, is_file


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
    spaces = find_spaces(words[1])
    kind = spaces.observation.get("type") if spaces is not None else None
    shape = spaces.observation.get("shape", ()) if spaces is not None else ()
    if kind == "dict":
        draft.put(("policy", "name"), "MultiInputPolicy")
    elif len(shape) == 3:
        draft.put(("policy", "name"), "CnnPolicy")
    return draft
