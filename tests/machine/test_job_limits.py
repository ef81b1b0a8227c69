"""Inside a job, the budget is what the scheduler gave, and `machine` says who gave it."""

from pathlib import Path

import pytest
from tests.machine.test_machine import write_machine

from legroom.cli.budgets import chosen_budget
from legroom.cli.commands import LimitOptions
from legroom.machine import probe
from legroom.machine.probing import Job, read_job
from legroom.units import GIB, MIB


@pytest.mark.parametrize(
    ("variables", "limit", "said"),
    [
        ({"SLURM_MEM_PER_NODE": "4096"}, 4 * GIB, "--mem=4096M"),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "3"}, 6 * GIB, "--mem-per-cpu=2048M × 3"),
        ({"SLURM_MEM_PER_GPU": "8192", "SLURM_GPUS_ON_NODE": "2"}, 16 * GIB, "--mem-per-gpu=8192M × 2"),
        ({"SLURM_MEM_PER_NODE": "0"}, None, ""),
        ({"SLURM_MEM_PER_NODE": "4G"}, None, ""),
        ({}, None, ""),
    ],
)
def test_what_slurm_gave(tmp_path, variables, limit, said):
    assert read_job({"SLURM_JOB_ID": "17", **variables}, tmp_path) == Job("Slurm job 17", limit, said)


def test_what_condor_gave(tmp_path):
    ad = tmp_path / "ad"
    ad.write_text('Cpus = 4\nMemory = 2048\nName = "slot1"\nTotalMemory = 64000\n')
    assert read_job({"_CONDOR_MACHINE_AD": str(ad)}, tmp_path) == Job("this HTCondor job", 2 * GIB, "its machine ad")
    assert read_job({"_CONDOR_MACHINE_AD": str(tmp_path / "none")}, tmp_path).limit is None


def test_pods_and_containers_have_no_variables_with_a_limit(tmp_path):
    assert read_job({}, tmp_path) is None
    assert read_job({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path) == Job("this pod")
    (tmp_path / ".dockerenv").touch()
    assert read_job({}, tmp_path) == Job("this container")


def in_slurm(monkeypatch, mem: str) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", mem)


def test_a_limit_that_no_cgroup_has_is_the_budget(tmp_path: Path, monkeypatch):
    in_slurm(monkeypatch, "2048")
    machine = probe(write_machine(tmp_path))
    assert (machine.limit, machine.limit_origin) == (2 * GIB, "Slurm job 17, --mem=2048M")
    budget = chosen_budget(machine, LimitOptions())
    assert (budget.ram, budget.ram_origin) == (2 * GIB, "available in Slurm job 17")


def test_the_cgroup_of_the_job_counts_what_is_used_already(tmp_path: Path, monkeypatch):
    in_slurm(monkeypatch, "2048")
    machine = probe(write_machine(tmp_path, limit=str(2 * GIB), current=512 * MIB))
    assert (machine.limit, machine.available) == (2 * GIB, 1536 * MIB)
    assert machine.limit_origin == "Slurm job 17, --mem=2048M"


def test_a_job_without_a_limit_has_the_machine(tmp_path: Path, monkeypatch):
    in_slurm(monkeypatch, "0")
    machine = probe(write_machine(tmp_path))
    assert (machine.limit, machine.place) == (None, "on this machine")
