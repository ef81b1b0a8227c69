"""A walking biped, thousands at once on one accelerator (MJX, brax PPO)."""

from legroom.extend import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Biped": "legroom_workloads.robot.biped",
        "RobotEnv": "legroom_workloads.robot.env",
        "RobotGymEnv": "legroom_workloads.robot.gym_env",
        "Task": "legroom_workloads.robot.task",
        "read_biped": "legroom_workloads.robot.biped",
        "save_gif": "legroom_workloads.robot.pictures",
        "score_policy": "legroom_workloads.robot.score",
    },
)
