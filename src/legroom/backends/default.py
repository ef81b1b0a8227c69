"""The backend of a run that names none: a run file need not say it."""

DEFAULT_BACKEND = "sb3"
