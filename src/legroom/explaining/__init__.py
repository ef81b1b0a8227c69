"""What a log or traceback says ran out: `explain(text) -> Explanation`, with kind `unknown` where nothing is known.

explain(text)                        a log, a traceback, the standard error of a command
explain(text, exit_code=137)         the same, knowing how the process ended; the text may be empty
explain_file(path)                   a file of any size; only its ends are read unless they say nothing
"""

from legroom.explaining.explain import explain, explain_file, explain_stream
from legroom.model.trace import Advice, Dimension, Explanation

__all__ = ["Advice", "Dimension", "Explanation", "explain", "explain_file", "explain_stream"]
