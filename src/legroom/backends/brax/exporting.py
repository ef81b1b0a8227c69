"""What a brax run has learned as one safetensors file, which needs neither jax nor legroom to be read.

Names are paths of brax's own trees: `params/policy/…` and `params/value/…` with flax's layers, `normalizer/…` with
the running statistics of observations. brax's inference function takes (normalizer, policy, value), nested as named.
SAC has `params/policy`, `params/q`, `params/target_q` and `params/alpha` (a logarithm), and takes (normalizer, policy).
"""

import shutil
from pathlib import Path

from legroom.errors import BadInput
from legroom.model.files import whole_file
from legroom.model.learner import Exported
from legroom.training.archives import check_export
from legroom.training.checkpoint import newest_checkpoint

POLICY = "policy.safetensors"
NOTES = ("all networks and the statistics that normalise observations, as brax names them",)


def export_brax(directory: Path, archive: Path, *, force: bool = False) -> Exported:
    """Write what the last good checkpoint of a run has learned, or the one checkpoint that `directory` is.

    Raises:
        BadInput: there is no good checkpoint, the file exists (and not `force`), or it cannot be written.
    """
    check_export(directory, archive, force=force)
    checkpoint = newest_checkpoint(directory)
    if checkpoint is None:
        raise BadInput("holds no good checkpoint", path=directory, hint="legroom train RUN --out DIR writes them")
    if archive.suffix != ".safetensors":
        raise BadInput("a brax policy is exported as safetensors", path=archive, hint="name it POLICY.safetensors")
    try:
        with whole_file(archive) as file, checkpoint.file(POLICY).open("rb") as policy:
            shutil.copyfileobj(policy, file)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror or error}", path=archive) from error
    return Exported(archive, checkpoint.data["algorithm"], checkpoint.step, archive.stat().st_size, NOTES)
