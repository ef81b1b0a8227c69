"""Every family of texts: the kind and the numbers that stand in it, and nothing that does not."""

import pytest
from explain_fixtures import EXPECTED, KEYS, NAMES, TEXTS, facts, text_of

from legroom.explaining import explain
from legroom.explaining.readers import READERS
from legroom.explaining.sizes import array_bytes, parse_shape, to_bytes
from legroom.explaining.texts import texts
from legroom.model.trace import KINDS

GIB = 1 << 30
ROUNDING = 8  # bytes: the difference of two rounded sizes


@pytest.mark.parametrize("name", NAMES)
def test_the_kind_and_every_number_are_right(name: str) -> None:
    found, expected = facts(explain(text_of(name))), EXPECTED[name]
    for key in KEYS:
        if key == "reserved_unallocated" and expected[key]:
            assert abs(found[key] - expected[key]) <= ROUNDING
        else:
            assert found[key] == expected[key], key


def test_every_kind_has_a_fixture_and_every_fixture_is_expected() -> None:
    assert {one["kind"] for one in EXPECTED.values()} == set(KINDS)
    assert {path.name for path in TEXTS.glob("*.txt")} == set(EXPECTED)


def test_words_are_lower_case_since_they_are_searched_in_lower_case_text() -> None:
    assert all(word == word.lower() for one in texts() for word in one.words)


def test_every_entry_of_the_table_says_something_or_names_its_reader() -> None:
    rows = [case for one in texts() for case in (one.cases if one.case else [one])]
    assert {one.by for one in rows if one.by} == set(READERS)
    assert all(one.by or (one.say and one.kind in KINDS and one.kind != "unknown") for one in rows)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("105. GiB", 105 * GIB), ("12.50 MiB", 13_107_200), ("0 bytes", 0), ("256 bytes", 256), ("33554432B", 1 << 25),
        ("3,200,000,512 bytes", 3_200_000_512), ("8.54G", round(8.54 * GIB)), ("18.13 GB", round(18.13 * GIB)),
        ("48.5KiB", 49_664), ("1.89 TiB", round(1.89 * 1024 * GIB)), ("17179869184.00 GiB", None), ("many", None),
    ],
)  # fmt: skip
def test_sizes_as_messages_print_them(text: str, nbytes: int | None) -> None:
    assert to_bytes(text) == nbytes


def test_shapes_and_types() -> None:
    assert parse_shape("(2048, 4, 17)") == (2048, 4, 17)
    assert parse_shape("(1000000,)") == (1_000_000,)
    assert parse_shape("[256,64]") == (256, 64)
    assert parse_shape("()") is None
    assert array_bytes((10, 10), "float32") == 400
    assert array_bytes((10,), "<U12") == 480
    assert array_bytes((10,), "datetime64[ns]") == 80
    assert array_bytes((10,), "mystery") is None


def test_a_size_that_its_own_shape_contradicts_is_not_certain() -> None:
    right = "Unable to allocate 3.81 MiB for an array with shape (1000, 1000) and data type float32"
    assert explain(right).certain
    found = explain(right.replace("3.81 MiB", "3.81 GiB"))
    assert not found.certain
    assert any("3.8 MiB" in note for note in found.notes)


@pytest.mark.parametrize("code", [137, -9])
def test_an_exit_code_alone_means_killed(code: int) -> None:
    found = explain("", exit_code=code)
    assert (found.kind, found.certain) == ("killed", False)
    assert explain("", exit_code=1).kind == "unknown"


def test_a_text_says_more_than_the_exit_code() -> None:
    assert explain(text_of("slurm_oom_kill.txt"), exit_code=137).kind == "slurm"
    assert explain(text_of("cuda_reserved.txt"), exit_code=-9).kind == "cuda"


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        ("killed_shell", "slurm_oom_kill"), ("killed_shell", "ray_monitor"), ("killed_shell", "loader_killed"),
        ("killed_shell", "dmesg_new"), ("killed_shell", "container_dmesg"), ("subproc_eof", "numpy_rollout"),
        ("subproc_eof", "cuda_others"), ("subproc_broken_pipe", "pagefile"), ("async_reset", "dmesg_old"),
        ("loader_exited", "loader_bus_error"), ("ray_actor_died", "ray_monitor"), ("ray_actor_died", "cuda_reserved"),
        ("ray_raylet", "ray_monitor"), ("container_dmesg", "slurm_oom_kill"), ("cuda_bare", "cuda_reserved"),
        ("memory_error_bare", "torch_cpu_linux"), ("loader_killed", "dmesg_new"),
    ],
)  # fmt: skip
def test_who_knows_more_wins_whatever_came_last(general: str, specific: str) -> None:
    one, other = text_of(f"{general}.txt"), text_of(f"{specific}.txt")
    alone = facts(explain(other))
    assert facts(explain(f"{one}\nretrying\n{other}")) == alone
    assert facts(explain(f"{other}\nretrying\n{one}")) == alone


def test_of_two_failures_of_one_rank_the_last_ended_the_run() -> None:
    first, last = text_of("cuda_reserved.txt"), text_of("cuda_capacty.txt")
    padding = "iteration done\n" * 500
    assert facts(explain(first + padding + last)) == facts(explain(last))
    assert facts(explain(last + padding + first)) == facts(explain(first))
    corrupt = text_of("checkpoint_central_directory.txt")
    assert explain(first + padding + corrupt).kind == "checkpoint-corrupt"


def test_workers_that_lose_their_killed_parent_do_not_hide_that_it_was_killed() -> None:
    echo = (
        "Process ForkServerProcess-3:\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap\n    self.run()\n'
        '  File "/opt/stable_baselines3/common/vec_env/subproc_vec_env.py", line 35, in _worker\n'
        "    cmd, data = remote.recv()\nEOFError\n"
    )
    assert explain(echo).kind == "worker-died"
    assert explain("Killed\n" + echo).kind == "killed"


def test_a_broken_download_or_terminal_is_no_dead_worker() -> None:
    download = (
        'Traceback (most recent call last):\n  File "/x/site-packages/urllib3/pool.py", line 703, in urlopen\n'
        "    httplib_response = self._make_request(\nConnectionResetError: [Errno 104] Connection reset by peer\n"
    )
    terminal = (
        "Exception ignored in: <_io.TextIOWrapper name='<stdout>' mode='w' encoding='utf-8'>\n"
        "BrokenPipeError: [Errno 32] Broken pipe\n"
    )
    assert explain(download).kind == "unknown"
    assert explain(terminal).kind == "unknown"


def test_a_container_that_was_not_killed_for_memory() -> None:
    assert explain('"State": {"OOMKilled": false, "ExitCode": 1}').kind == "unknown"
