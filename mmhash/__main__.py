"""`python -m mmhash`: the command line without the `mmhash` script on the path."""

from mmhash.cli import main

main()
