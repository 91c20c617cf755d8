"""Runs the command line as `python -m mmhash`, where the `mmhash` script is not on the path."""

from mmhash.cli import main

main()
