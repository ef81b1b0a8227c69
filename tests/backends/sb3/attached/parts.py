"""What the programs of this folder share: a hash of all that was learned, and two sizes."""

import hashlib
import sys

import numpy as np
import torch

torch.set_num_threads(1)


def tell(model):
    """Print the hash of all parameters, and of what the program has drawn of its generators."""
    found = hashlib.sha256()
    for name, value in sorted(model.policy.state_dict().items()):
        found.update(name.encode() + value.numpy().tobytes())
    found.update(np.random.random(3).tobytes() + torch.rand(3).numpy().tobytes())
    print("sha256", found.hexdigest())  # noqa: T201


def scale(small, large):
    """Return a figure of a small run, or of a large one where the first argument says so."""
    return large if sys.argv[1:2] == ["large"] else small
