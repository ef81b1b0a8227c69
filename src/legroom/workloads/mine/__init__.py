"""Open-pit mining: which block of the deposit to dig next (3D CNN, MaskablePPO)."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "BlockModel": "legroom.workloads.mine.blocks",
        "Cnn3d": "legroom.workloads.mine.nets",
        "Economics": "legroom.workloads.mine.economics",
        "MineEnv": "legroom.workloads.mine.env",
        "best_greedy": "legroom.workloads.mine.greedy",
        "block_values": "legroom.workloads.mine.economics",
        "draw_schedule": "legroom.workloads.mine.pictures",
        "load_model": "legroom.workloads.mine.models",
        "score_policy": "legroom.workloads.mine.score",
        "ultimate_pit": "legroom.workloads.mine.pit",
    },
)
