"""What RLlib has learned as SB3's archive: its networks are SB3's, and so are their parameters' names."""

from pathlib import Path

import torch

from legroom.backends.base import find_algorithm
from legroom.backends.sb3.archives_zip import build_model, save_archive, trusted_run
from legroom.backends.sb3.state import saved_spaces
from legroom.errors import BadInput
from legroom.model.learner import Exported
from legroom.training.checkpoint import newest_checkpoint
from legroom.training.run_folder import check_export


def export_rllib(directory: Path, archive: Path, *, force: bool = False, trust: bool = False) -> Exported:
    """Write SB3's archive of a run's last good checkpoint, or of the one checkpoint that `directory` is.

    Raises:
        BadInput: as `export_sb3`.
    """
    directory, archive = Path(directory), Path(archive)
    check_export(directory, archive, force=force)
    checkpoint = newest_checkpoint(directory)
    if checkpoint is None:
        raise BadInput("holds no good checkpoint", path=directory, hint="legroom train RUN --out DIR writes them")
    run = trusted_run(checkpoint.path.parent.parent, trust=trust)
    algorithm = find_algorithm("sb3", run.algo)
    hyperparams = {k: v for k, v in run.hyperparams.items() if algorithm is not None and k in algorithm.keys}
    seen = saved_spaces(checkpoint)
    plain = run.replace(backend="sb3", hyperparams=hyperparams)
    model = build_model(plain, seen["observation"], seen["action"], run.env.n_envs)
    learned = {name: torch.from_numpy(array) for name, array in checkpoint.tensors("policy").items()}
    try:
        model.policy.load_state_dict(learned)
    except RuntimeError as error:
        raise BadInput(f"belongs to another policy: {error}", path=checkpoint.path) from error
    model.num_timesteps = checkpoint.step
    save_archive(model, archive)
    notes = ("optimizers start fresh: RLlib's differ from SB3's",)
    return Exported(archive, run.algo, checkpoint.step, archive.stat().st_size, notes)
