"""Ray as a cluster: sessions, nodes, capacity. RLlib is in `backends.rllib`, sweeps in `sweeping`."""
