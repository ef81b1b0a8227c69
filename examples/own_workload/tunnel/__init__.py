"""A tunnel through a hill: a workload in a package of its own."""
