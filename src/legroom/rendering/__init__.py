"""Results as text for people and as JSON for programs; nothing here computes."""
