"""Ray: sessions of it that are surely gone afterwards, training with RLlib, sweeps.

The package is called like the library: imports in it are absolute, and `import ray` means the library. Nothing is
imported here, since Ray takes a second to load.
"""
