"""`python -m teb` is the `teb` command."""

from teb.cli import main

main()
