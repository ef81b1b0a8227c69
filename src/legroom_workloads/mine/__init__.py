"""Open-pit mining: which block of the deposit to dig next (3D CNN, MaskablePPO)."""

from legroom.extend import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "BlockModel": "legroom_workloads.mine.blocks",
        "Cnn3d": "legroom_workloads.mine.nets",
        "Economics": "legroom_workloads.mine.economics",
        "MineEnv": "legroom_workloads.mine.env",
        "best_greedy": "legroom_workloads.mine.greedy",
        "block_values": "legroom_workloads.mine.economics",
        "draw_schedule": "legroom_workloads.mine.pictures",
        "load_model": "legroom_workloads.mine.models",
        "score_policy": "legroom_workloads.mine.score",
        "ultimate_pit": "legroom_workloads.mine.pit",
    },
)
