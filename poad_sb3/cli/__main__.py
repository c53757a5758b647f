"""`python -m poad_sb3.cli`: the command `poad`."""

from poad_sb3.cli import main

main()
