"""`python -m draftworth` is the `draftworth` command."""

from draftworth.cli import main

main()
