"""The static interpreter of Python source: nothing of a script is ever executed.

`evaluator` gives expressions their values, `follower` goes through a script statement by statement as a run would, and
`known_values` keeps what each expression came to on the way, for rules and readers that ask.
"""
