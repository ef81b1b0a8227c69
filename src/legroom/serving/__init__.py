"""The planner page: a small server on this machine that predicts, fits and checks what people turn in a browser.

It reads and computes, and never runs what it is given: runs arrive as data, and the one thing that builds networks (a
traced prediction) happens in a child process, for the runs that the page was started with.
"""
