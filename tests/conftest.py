"""What holds for all tests.

Generated inputs are the same in every run: what fails, fails again. `make fuzz` draws them anew.
"""

import gc
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("same-every-time", derandomize=True, database=None, deadline=None)
settings.load_profile("same-every-time")


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
