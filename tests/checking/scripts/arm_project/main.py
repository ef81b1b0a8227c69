"""A project of several files."""

import tracemalloc

from arm_env import ArmEnv
from options import get_args
from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import SubprocVecEnv


class MemoryWatch:
    def __init__(self):
        self.snapshots = []
        tracemalloc.start(25)

    def tick(self):
        self.snapshots.append(tracemalloc.take_snapshot())


def main():
    args = get_args()
    env = SubprocVecEnv([lambda i=i: ArmEnv(i) for i in range(args.num_envs)])
    if args.checkpoint:
        model = SAC.load(args.checkpoint, env=env)
    else:
        model = SAC("MlpPolicy", env, buffer_size=args.buffer_size)
    watch = MemoryWatch()
    for _ in range(100):
        model.learn(args.steps // 100, reset_num_timesteps=False)
        watch.tick()


if __name__ == "__main__":
    main()
