"""A cluster of several nodes on this machine, and a run trained on it: the measured side of `bench.ray_nodes`.

    python -m bench.ray_nodes_child TASK.json

Says in one JSON line which processes belong to which node, trains, and waits for its standard input before it ends.
A worker belongs to the node whose raylet started it; the driver to the head.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

# Ray would take the machine's address instead of the loopback interface, unless there are no clusters.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "OMP_NUM_THREADS": "1"}

import ray
from ray.cluster_utils import Cluster

from legroom.backends.rllib.config import building, make_config
from legroom.backends.rllib.translation import rllib_plan
from legroom.fitting.changes import with_settings
from legroom.model.run import Run

LEAST_ITERATIONS = 3  # what the first one frees, the second one may not get back


def main(task_file: str) -> None:
    task = json.loads(Path(task_file).read_text())
    run = Run.model_validate(task["run"])
    cluster = Cluster()
    try:
        for node in task["nodes"]:
            cluster.add_node(
                num_cpus=node["cpus"],
                memory=node["memory"],
                object_store_memory=node["object_store"],
                include_dashboard=False,
                node_ip_address="127.0.0.1",
            )
        ray.init(address=cluster.address, log_to_driver=False)
        plan = rllib_plan(with_settings(run, memory={"runner_bytes": task.get("runner_nbytes")}))
        with building(Path(task_file).parent, plan.runner_nbytes):
            algorithm = make_config(run, plan, "cpu").build_algo()
        tell({"nodes": [_processes(node) for node in cluster.list_all_nodes()]})
        steps = iterations = 0
        while steps < task["steps"] or iterations < LEAST_ITERATIONS:
            steps = algorithm.train()["num_env_steps_sampled_lifetime"]
            iterations += 1
        tell({"done": True})
        sys.stdin.readline()
        algorithm.stop()
    finally:
        ray.shutdown()
        cluster.shutdown()


def _processes(node: Any) -> dict[str, Any]:
    """Return the node's own processes by kind; its workers are the raylet's children."""
    own = {kind: [info.process.pid for info in infos] for kind, infos in node.all_processes.items()}
    if node.head:
        own["driver"] = [os.getpid()]
    return {"head": bool(node.head), "processes": own, "raylet": own["raylet"][0]}


def tell(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
