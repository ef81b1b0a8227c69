"""Training: the folder of a run, its supervised child process, and the checkpoints it leaves behind."""
