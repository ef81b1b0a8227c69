"""Every command gives the same answer to the same question: what a run needs, and whether it fits."""

import json

import pytest
from in_process import legroom

from legroom.model.spaces import describe, leaves
from legroom.reading import read

MAKES_OTHER_SPACES = [
    ("mine:small", ["env.grid=[100,100,50]"], "17×100×100×50 float32"),
    ("mine:small", ["env.kwargs.grid=[12,10,5]"], "17×12×10×5 float32"),
    ("gameboy:default", ["env.kwargs.grey=true", "env.kwargs.downsample=2"], "72×80×1 uint8"),
    ("gameboy:learn", ["env.kwargs.crop=null"], "72×80×1 uint8"),
    ("ninja:default", ["env.kwargs.global_view=false"], "player_frame"),
    ("ninja:learn", ["env.kwargs.observation=dict", "policy.name=MultiInputPolicy"], "player_frame"),
    ("fire:low", ["env.grid=[30,40]", "env.kwargs.breaks_per_step=2"], "8×30×40 float32"),
]


@pytest.mark.parametrize(("name", "settings", "seen"), MAKES_OTHER_SPACES)
def test_spaces_follow_what_the_environment_is_made_with(name: str, settings: list[str], seen: str) -> None:
    """Declared spaces are those of the declared arguments: with others the bill was that of another observation."""
    from legroom.environments.gym_spaces import from_gymnasium
    from legroom.environments.objects import resolve_object

    run = read(name, overrides=[tuple(each.split("=", 1)) for each in settings])
    assert run.env.spaces is not None
    assert sorted(describe(run.env.spaces.observation).split(" + "))[-1].startswith(seen)
    env = resolve_object(str(run.env.id))(**run.env.arguments)
    built, declared = (leaves(each) for each in (from_gymnasium(env.observation_space), run.env.spaces.observation))
    assert {key: describe(leaf) for key, leaf in built.items()} == {
        key: describe(leaf) for key, leaf in declared.items()
    }
    assert describe(from_gymnasium(env.action_space)) == describe(run.env.spaces.action)
    env.close()


def test_what_the_base_run_declares_does_not_outlive_other_arguments(tmp_path) -> None:
    file = tmp_path / "coarse.yaml"
    file.write_text("algo: MaskablePPO\nenv: {grid: [30, 30, 20]}\n")
    run = read(str(file), like="mine:small")
    assert run.env.spaces is not None
    assert describe(run.env.spaces.observation) == "17×30×30×20 float32"


def test_spaces_that_only_the_environment_knows_are_not_taken_from_the_file() -> None:
    """A wrapper may do anything: the figures are unknown until the environment is built, and never the old ones."""
    run = read("mine:small", overrides=[("env.wrappers", "['gymnasium.wrappers:FlattenObservation']")])
    assert run.env.spaces is None


@pytest.mark.parametrize("command", ["predict", "fit", "check"])
def test_a_larger_grid_does_not_fit_for_any_command(command: str) -> None:
    """The rollout alone is 8.1 GiB, and 2 GiB were said to be enough."""
    done = legroom(command, "mine:small", "--set", "env.grid=[100,100,50]", "--ram", "2GiB", "--json")
    text = json.loads(done.stdout)
    assert done.returncode == (0 if command == "fit" else 1), done.stderr
    if command == "predict":
        assert text["runs"][0]["fits"] is False
    if command == "fit":
        assert text["before"]["host"]["peak"] > 16 * 2**30
    if command == "check":
        assert "LR013" in {finding["code"] for finding in text["findings"]}
