"""Memory over time: of any command (`watch.watch`, `watch.attach`), of an environment (`profile`), and one verdict."""
