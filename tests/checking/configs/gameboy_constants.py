"""The constants that the analysis of a Game Boy fighter found critical, mostly without reason."""

NUM_ENVS = 2
EP_LENGTH = 8192
FRAME_STACK_SIZE = 4
BATCH_SIZE = 2048
N_EPOCHS = 10
TOTAL_TIMESTEPS = 10_000_000
SAVE_FREQ = EP_LENGTH * 10
SAVE_REPLAY_BUFFER = True
