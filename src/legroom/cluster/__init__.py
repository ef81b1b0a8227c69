"""Ray: sessions here and on a running cluster. RLlib is in `backends.rllib`, sweeps in `sweeping`."""
