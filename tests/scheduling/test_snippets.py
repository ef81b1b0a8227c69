"""`--for`: what is pasted gives the job its memory, in the units of the system that reads it."""

import json

import yaml
from tests.cli.in_process import legroom

from legroom.model.footprint import Footprint, Item, Place
from legroom.scheduling.requests import JobRequest, System, granted, measured_request, request_for, snippet
from legroom.units import GIB, MIB


def footprint(host: int, shm: int = 0, gpu: int = 0, **more) -> Footprint:
    items = [Item("rollout", host, Place.HOST, "")]
    items += [Item("slots", shm, Place.SHM, "")] if shm else []
    items += [Item("nets", gpu, Place.GPU, "", error=100 * MIB)] if gpu else []
    return Footprint("job", tuple(items), "cuda" if gpu else "cpu", **more)


def test_the_margin_grows_with_the_processes_of_the_job():
    assert request_for(footprint(1000 * MIB)).host == (1020 + 10 + 3) * MIB
    assert request_for(footprint(1000 * MIB), supervisor=200 * MIB).host == (1224 + 10 + 2 * 3) * MIB
    workers = (Item("imports", 10 * MIB, Place.WORKER, "", count=20), Item("envs", MIB, Place.WORKER, "", count=20))
    many = Footprint("job", (Item("rollout", 980 * MIB, Place.HOST, ""), *workers), "cpu")
    assert request_for(many).host == (1224 + 10 + 21 * 3) * MIB
    assert measured_request(1000 * MIB) == 1116 * MIB


def test_slurm_counts_in_MiB_and_in_GiB_where_that_adds_little():
    assert snippet(request_for(footprint(1100 * MIB)), System.SLURM).splitlines()[1:] == ["#SBATCH --mem=1135M"]
    nearly = JobRequest("job", int((16 * GIB - 13 * MIB) / 1.02) - 20 * MIB)
    assert "#SBATCH --mem=16G" in snippet(nearly, System.SLURM)
    assert granted(nearly, System.SLURM) == 16 * GIB
    assert granted(nearly, System.KUBERNETES) < 16 * GIB


def test_a_card_is_asked_for_with_the_memory_it_needs():
    request = request_for(footprint(1000 * MIB, gpu=2000 * MIB))
    assert "#SBATCH --gres=gpu:1" in snippet(request, System.SLURM)
    assert "at least 2.1 GiB free" in snippet(request, System.SLURM)
    assert "--gpus=1" in snippet(request, System.DOCKER)
    assert snippet(request, System.CONDOR).splitlines()[-2:] == ["request_gpus = 1", "gpus_minimum_memory = 2100"]


def test_condor_gives_multiples_of_128_MiB():
    assert "request_memory = 1152MB" in snippet(request_for(footprint(1000 * MIB)), System.CONDOR)
    assert granted(request_for(footprint(1000 * MIB)), System.CONDOR) == 1152 * MIB


def test_docker_gets_shared_memory_only_where_its_default_is_too_small():
    assert snippet(request_for(footprint(900 * MIB, shm=100 * MIB)), System.DOCKER).splitlines()[-1] == (
        "docker run --memory=1033m --shm-size=112m IMAGE COMMAND"
    )
    assert "shm" not in snippet(request_for(footprint(900 * MIB, shm=10 * MIB)), System.DOCKER)


def test_a_pod_can_be_parsed_and_its_requests_are_its_limits():
    request = request_for(footprint(900 * MIB, shm=100 * MIB, gpu=GIB))
    pod = yaml.safe_load(snippet(request, System.KUBERNETES))["spec"]
    container = pod["containers"][0]
    assert container["resources"] == {
        "requests": {"memory": "1033Mi"},
        "limits": {"memory": "1033Mi", "nvidia.com/gpu": 1},
    }
    assert container["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
    assert pod["volumes"] == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "112Mi"}}]


def test_what_was_not_built_is_said():
    text = snippet(request_for(footprint(900 * MIB, not_built="no such package")), System.SLURM)
    assert "# without the environment, which was not built: no such package" in text


def test_predict_prints_it_after_the_bill_and_puts_it_into_the_document():
    told = legroom("predict", "mine:small", "--mode", "arithmetic", "--ram", "16GiB", "--for", "slurm")
    assert told.returncode == 0
    assert told.stdout.rstrip().splitlines()[-1].startswith("#SBATCH --mem=")
    data = legroom("predict", "mine:small", "--mode", "arithmetic", "--ram", "16GiB", "--for", "condor", "--json")
    run = json.loads(data.stdout)["runs"][0]
    assert run["job"]["memory"] % (128 * MIB) == 0
    assert run["job"]["memory"] >= run["job"]["need"] > run["host"]["band"][1]


def test_fit_asks_for_what_the_fitted_run_needs():
    told = legroom("fit", "mine:full", "--ram", "8GiB", "--mode", "arithmetic", "--for", "docker", "--json")
    plan = json.loads(told.stdout)
    assert plan["after"]["host"]["band"][1] < plan["job"]["need"] < plan["before"]["host"]["peak"] / 10
    assert "docker run --memory=" in plan["job"]["text"]
