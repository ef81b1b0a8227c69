"""A platformer with many environments side by side (PPO on two frames and a state vector)."""

from legroom.extend import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "EnvironmentConfig": "legroom_workloads.ninja.config",
        "Game": "legroom_workloads.ninja.game",
        "Level": "legroom_workloads.ninja.level",
        "NinjaEnv": "legroom_workloads.ninja.env",
        "RenderConfig": "legroom_workloads.ninja.config",
        "Rewards": "legroom_workloads.ninja.config",
        "create_environment": "legroom_workloads.ninja.env",
        "generate": "legroom_workloads.ninja.generator",
        "read_map": "legroom_workloads.ninja.map_file",
        "score_policy": "legroom_workloads.ninja.score",
        "write_map": "legroom_workloads.ninja.map_file",
    },
)
