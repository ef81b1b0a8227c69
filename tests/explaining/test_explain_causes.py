"""What allocated it, which dimension multiplies, and what to do: what a person reads after a crash."""

import shlex

import pytest
from explain_fixtures import EXPECTED, NAMES, text_of

from legroom.cli.main import command_called
from legroom.cli.parsing import parse
from legroom.explaining import Explanation, explain
from legroom.explaining.causes import CAUSES
from legroom.model.plan import PRICES
from legroom.rendering.explanation_text import rehearsal_of
from legroom.units import parse_size


def assert_parses(command: str) -> None:
    """Give a suggested command to the parser that would get it from a shell; other programs' are known by name."""
    words = shlex.split(command)
    if words[0] != "legroom":
        assert words[0] in ("nvidia-smi", "docker"), command
        return
    assert words.count("--") <= 1, command
    asked = parse(command_called(words[1], with_program="--" in words), words[2:])
    for size in filter(None, (getattr(asked, "ram", None), getattr(asked, "vram", None))):
        assert parse_size(size) > 0
    assert "--" not in words or words[words.index("--") + 1 :], command


def explained(name: str) -> Explanation:
    return explain(text_of(f"{name}.txt"))


def named(found: Explanation) -> list[tuple[str, tuple[int, ...]]]:
    return [(dimension.name, dimension.sizes) for dimension in found.dimensions]


def test_the_mine_s_array_is_steps_times_envs_times_observation() -> None:
    found = explained("seed_mine")
    assert named(found) == [("n_steps", (2048,)), ("n_envs", (4,)), ("observation", (17, 49, 71, 58))]
    assert "n_steps 256 instead of 2,048 would ask 13.1 GiB" in found.notes  # 104.68 / 8
    assert "rollout" in found.cause


def test_a_replay_buffer_is_rows_times_envs_times_observation() -> None:
    found = explained("numpy_replay_windows")
    assert named(found) == [("buffer rows", (2_000_000,)), ("n_envs", (1,)), ("observation", (4, 84, 84))]
    assert "replay" in found.cause
    assert "train.py:18" in found.cause
    assert found.command == "legroom predict -- python train.py"
    assert found.advice[0].knob == "memory.replay=lean"
    assert all("rollout" not in one.knob for one in found.advice)


def test_the_flatten_copy_has_the_environments_first() -> None:
    found = explained("numpy_flatten")
    assert named(found) == [("n_envs", (2,)), ("n_steps", (8192,)), ("observation", (12, 144, 160))]
    assert "flatten" in found.cause


def test_the_traceback_names_the_rollout_buffer_and_the_script() -> None:
    found = explained("numpy_rollout")
    assert "rollout buffer" in found.cause
    assert "train.py:41" in found.cause
    assert found.advice[0].knob == "memory.rollout=lean"
    assert "hyperparams.n_steps=512" in [one.knob for one in found.advice]


def test_a_caller_s_line_does_not_name_the_array_that_something_else_allocated() -> None:
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\n'
        "    buffer = RolloutBuffer(2048, Box(0, 1, (17, 490, 710, 580)))\n"
        '  File "/x/site-packages/gymnasium/spaces/box.py", line 156, in __init__\n    low = _cast(low)\n'
        '  File "/x/site-packages/gymnasium/spaces/box.py", line 99, in _cast\n    return np.full(shape, low)\n'
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 25.6 GiB for an array with shape "
        "(17, 490, 710, 580) and data type float64\n"
    )
    found = explain(text)
    assert "space" in found.cause
    assert found.dimensions == ()
    assert all("lean" not in one.knob for one in found.advice)


def test_an_array_that_no_code_and_no_shape_explains_gets_no_names() -> None:
    found = explain("Unable to allocate 7.45 GiB for an array with shape (40000, 25000) and data type float64")
    assert found.dimensions == ()
    assert found.cause == ""


def test_backward_is_recognised_and_other_processes_are_taken_off_the_card() -> None:
    found = explained("cuda_others")
    assert "backward" in found.cause
    assert found.others == 6_979_321_856  # 4.00 + 2.50 GiB
    assert found.command == "legroom predict --vram 9.25GiB -- python run_ppo.py"  # 15.75 - 6.50
    assert found.advice[0].knob == "other processes"
    # a program's own loop has no run file: nothing is advised that only such a file can say
    assert not [one.knob for one in found.advice if one.knob.startswith(("memory.", "hyperparams."))]


def test_the_only_process_named_in_a_container_is_oneself() -> None:
    assert explained("cuda_private_pools").others == 0


@pytest.mark.parametrize(("name", "fragmented"), [("cuda_max_split", True), ("cuda_others", True), ("cuda_rocm", True),
                                                  ("cuda_windows_spill", False), ("seed_wildfire", False)])  # fmt: skip
def test_expandable_segments_only_where_memory_lies_unused(name: str, fragmented: bool) -> None:
    knobs = [one.knob for one in explained(name).advice]
    assert any(knob in knobs for knob in ("memory.expandable_segments=true", "expandable segments")) is fragmented


def test_spilling_into_ram_is_said() -> None:
    assert any("spilled" in note for note in explained("cuda_windows_spill").notes)


def test_the_optimizer_is_named() -> None:
    text = (
        'Traceback (most recent call last):\n  File "ppo.py", line 7, in <module>\n    optimizer.step()\n'
        '  File "/x/site-packages/torch/optim/adam.py", line 121, in _init_group\n'
        '    state["exp_avg"] = torch.zeros_like(p)\n' + text_of("cuda_reserved.txt")
    )
    assert "optimizer" in explain(text).cause


@pytest.mark.parametrize("name", [name for name in NAMES if EXPECTED[name]["kind"] != "unknown"])
def test_advice_is_cheapest_first_and_its_commands_can_be_copied(name: str) -> None:
    found = explain(text_of(name))
    prices = [PRICES.index(one.price) for one in found.advice]
    assert prices == sorted(prices)
    assert found.advice
    assert len({one.knob for one in found.advice}) == len(found.advice)
    assert all(one.say for one in found.advice)
    for command in filter(None, (found.command, rehearsal_of(found), *(one.command for one in found.advice))):
        assert_parses(command)
    if found.kind in ("simulator", "simulator-buffer", "kv-cache", "assertion"):
        assert not found.command.startswith("legroom")  # it would refuse such a program


def test_every_key_in_the_advice_is_one_that_a_run_accepts() -> None:
    from legroom.reading import read

    commands = {one.command for name in NAMES for one in explain(text_of(name)).advice}
    settings = {word for command in commands for word in shlex.split(command) if "=" in word and "." in word}
    assert len(settings) > 10
    for setting in settings:
        key, _, value = setting.partition("=")
        run = "fire:low" if "buffer_size" in key else "robot" if "xla" in key else "mine:small"
        read(run if ":" in run else f"{run}:gpu_12gb", overrides=[(key, value)])


def test_a_limit_becomes_the_budget() -> None:
    assert explained("container_kubernetes").command == "legroom fit RUN --ram 24GiB"
    assert explained("slurm_exceeded").command == "legroom fit RUN --ram 16GiB"
    assert explained("seed_wildfire").command == "legroom fit RUN --vram 3.68GiB"  # as the text says


def test_uncertain_causes_are_said_to_be_uncertain() -> None:
    assert "cause unknown" in explained("subproc_eof").summary
    assert "nearly always" in explained("killed_shell").summary
    assert "does not say" in explained("memory_error_bare").summary


def test_a_script_with_a_space_is_quoted() -> None:
    text = text_of("numpy_rollout.txt").replace("/home/ada/dig/train.py", "/home/ada/dig/my train.py")
    assert explain(text).command == "legroom predict -- python 'my train.py'"


def test_the_script_is_found_in_the_command_line_that_a_shell_shows() -> None:
    assert explained("killed_zsh").command == "legroom predict -- python train.py --n-envs 32"


def test_patterns_of_causes_are_about_paths_with_forward_slashes() -> None:
    assert all("\\\\" not in cause.pattern for cause in CAUSES)
