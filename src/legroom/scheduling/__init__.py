"""What to ask a scheduler for, and what a scheduler has given this process."""
