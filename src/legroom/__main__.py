"""`python -m legroom` is the command `legroom`."""

from legroom.cli.main import main

main()
