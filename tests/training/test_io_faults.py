"""File operations that fail and power that goes: the training goes on or resumes to the same parameters, every time."""

import shutil

import pytest
from bench import io_faults, power_loss

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the shim is built with gcc")
EVERY = pytest.mark.parametrize("every", [37, pytest.param(3, marks=pytest.mark.slow)])


@EVERY
def test_whichever_file_operation_fails_it_goes_on_or_resumes_to_the_same_parameters(tmp_path, every):
    for tally in io_faults.measure(tmp_path, every=every):
        assert not tally.bad, tally.bad[0]
        assert tally.faults >= tally.calls // every and tally.resumed == tally.faults


@EVERY
def test_whenever_the_power_goes_the_folder_is_whole(tmp_path, every):
    for losses in power_loss.measure(tmp_path, every=every):
        assert not losses.bad, losses.bad[0]
        assert losses.states >= 5 * (losses.operations // every)
