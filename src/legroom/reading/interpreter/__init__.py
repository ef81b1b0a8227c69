"""The static interpreter of Python source: nothing of a script is ever executed.

`evaluator` gives expressions their values, `follower` goes through a script statement by statement as a run would
(used by `predict`), `asker` answers what one expression comes to wherever it stands (used by `check`).
"""
