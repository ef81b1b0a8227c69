"""Predict the memory of a run: gather evidence, have the backend write its items, add them up."""
