"""XLA's compiler asked about a GPU that is not there."""
