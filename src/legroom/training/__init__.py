"""Training: the folder of a run, its supervised child process, and the checkpoints it leaves behind."""

RETRIES = 8  # how often a training may go on after a failure, unless told otherwise
