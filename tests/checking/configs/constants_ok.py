"""Constants of a training, all of them in order."""

ALGO = "PPO"
ENV_ID = "CartPole-v1"
NUM_ENVS = 4
N_STEPS = 256
BATCH_SIZE = 128
N_EPOCHS = 10
TOTAL_TIMESTEPS = 1_024 * 500
LR_WARMUP_STEPS = 10_000
