"""RLlib's new API stack, with a minibatch larger than what a learner gets."""

from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.train import CheckpointConfig, RunConfig

fine = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=2, num_envs_per_env_runner=4)
    .training(train_batch_size_per_learner=4000, minibatch_size=128, num_epochs=10, lr=3e-4)
    .learners(num_learners=1, num_gpus_per_learner=0)
)

config = PPOConfig().environment("CartPole-v1")
config.training(
    train_batch_size_per_learner=512,
    minibatch_size=1024,
)

tuner = tune.Tuner(
    "PPO",
    param_space=fine,
    run_config=RunConfig(checkpoint_config=CheckpointConfig(checkpoint_frequency=10, checkpoint_at_end=True)),
)
tuner.fit()
