"""Report after a run how many vectors of each engine and release ran."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter[str]] = {}
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            of_call = getattr(report, "when", None) == "call" or outcome == "skipped"
            release = dict(getattr(report, "user_properties", ())).get("vectors")
            if of_call and release:
                counts.setdefault(str(release), Counter())[outcome] += 1
    for release, outcomes in sorted(counts.items()):
        summary = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        terminalreporter.write_line(f"vectors: {release}: {summary}")
