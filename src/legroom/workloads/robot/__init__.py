"""A walking biped, thousands at once on one accelerator (MJX, brax PPO)."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Biped": "legroom.workloads.robot.biped",
        "RobotEnv": "legroom.workloads.robot.env",
        "RobotGymEnv": "legroom.workloads.robot.gym_env",
        "Task": "legroom.workloads.robot.task",
        "read_biped": "legroom.workloads.robot.biped",
        "save_gif": "legroom.workloads.robot.pictures",
        "score_policy": "legroom.workloads.robot.score",
    },
)
