"""The backend of a run that names none: run files of 0.1 need not say it."""

DEFAULT_BACKEND = "sb3"
