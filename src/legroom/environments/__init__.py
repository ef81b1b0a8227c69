"""Environments made from a run, stepped and measured in a child process; knows gymnasium, no training library."""
