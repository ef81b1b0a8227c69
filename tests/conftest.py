"""What holds for all tests.

Generated inputs are the same in every run: what fails, fails again. `make fuzz` draws them anew.
"""

import gc
import random
import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("same-every-time", derandomize=True, database=None, deadline=None)
settings.load_profile("same-every-time")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts `make test &` so, and every child of the tests
    signal.signal(signal.SIGINT, signal.default_int_handler)  # would inherit it: nothing could be interrupted
# The files with the longest tests, one row for each of the two processes of `make test`.
LONG = (
    ("test_train_rllib.py", "test_real_torch.py", "test_brax_training.py", "test_train_brax.py"),
    ("test_goldens.py", "test_hanging.py", "test_train.py", "test_ui_browser.py"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", help="a number: the files of tests in another order, each number its own")


@pytest.hookimpl(trylast=True)  # of the tests that are wanted
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each half of the tests, which a process begins with, begin with its long ones.

    One of them at the end would leave the other process with nothing to do, or with half of a file, for which what its
    tests share is made once more.
    """
    if order := config.getoption("order"):
        places = {path: random.Random(f"{order} {path}").random() for path in {item.path for item in items}}
        items.sort(key=lambda item: places[item.path])
        return
    first, second = ([item for name in names for item in items if item.path.name == name] for names in LONG)
    long = {*first, *second}
    short = [item for item in items if item not in long]
    half = max(len(items) // 2 - len(first), 0)
    items[:] = [*first, *short[:half], *second, *short[half:]]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at torch, jax, Ray and 6,000 tests: a whole collection takes 0.5 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def xla_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for compiled programs, one for all processes of these tests."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if folder.name.startswith("popen-") else folder) / "xla"
    folder.mkdir(exist_ok=True)
    return folder
