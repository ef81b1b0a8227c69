"""Where Ray's workers find the modules that a run names: as the training process does.

A Ray of our own inherits the environment of the process that starts it. On a cluster that runs already, the job says
it; `ray.init` takes a job's settings from a variable, which is how Ray's own job submission passes them on.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from legroom.cluster.session import environment

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


@contextmanager
def importable_by_workers(cluster: str) -> Iterator[None]:
    """Have workers of a session that is entered meanwhile import what this process can import."""
    path = os.pathsep.join(dict.fromkeys(entry for entry in sys.path if entry))
    name, value = "PYTHONPATH", path
    if cluster != "local":
        name, value = JOB_CONFIG, json.dumps({"runtime_env": {"env_vars": {"PYTHONPATH": path}}})
    with environment({name: value}):
        yield
