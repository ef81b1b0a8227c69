"""A platformer with many environments side by side (PPO on two frames and a state vector)."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "EnvironmentConfig": "legroom.workloads.ninja.config",
        "Game": "legroom.workloads.ninja.game",
        "Level": "legroom.workloads.ninja.level",
        "NinjaEnv": "legroom.workloads.ninja.env",
        "RenderConfig": "legroom.workloads.ninja.config",
        "Rewards": "legroom.workloads.ninja.config",
        "create_environment": "legroom.workloads.ninja.env",
        "generate": "legroom.workloads.ninja.generator",
        "read_map": "legroom.workloads.ninja.map_file",
        "score_policy": "legroom.workloads.ninja.score",
        "write_map": "legroom.workloads.ninja.map_file",
    },
)
