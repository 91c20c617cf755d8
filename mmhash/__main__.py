"""`python -m mmhash`: the same command line where the `mmhash` script is not on the path."""

from mmhash.cli import main

main()
