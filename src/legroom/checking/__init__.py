"""Check configurations and training scripts: subjects are read, rules look at them, findings come out."""
