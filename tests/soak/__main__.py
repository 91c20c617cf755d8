"""`python -m tests.soak --minutes 10`: ends with 1 if anything was wrong, lost or grew."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak import report
from tests.soak.environment import started
from tests.soak.run import Run


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second, about")
    parser.add_argument("--plot", action="store_true", help="keep the samples and draw them")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mmhash-soak-") as folder,
        started(Path(folder)) as environment,
    ):
        run = Run(environment, asked.minutes * 60, asked.rate)
        failures = run.to_the_end()
    report.print_table(run.outcomes)
    if asked.plot:
        report.plot(run.samples)
    for failure in failures:
        print(failure)
    print("failed" if failures else "good")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
