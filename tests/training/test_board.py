"""What is written for TensorBoard is what TensorBoard reads."""

import math

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from legroom.training.progress_log import Board


def test_tensorboard_reads_it(tmp_path):
    board = Board(tmp_path / "board")
    board.write(3, {"eval/reward": 1.5, "loss": -2.25})
    board.write(70_000, {"eval/reward": 1e300, "loss": math.nan})
    board.close()
    found = EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("eval/reward")] == [(3, 1.5), (70_000, math.inf)]
    assert [each.step for each in found.Scalars("loss")] == [3, 70_000]
