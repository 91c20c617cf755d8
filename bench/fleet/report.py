"""Results of a comparison: a CSV file with each run, and a table of their means."""

import csv
import statistics
from collections.abc import Iterable

from bench.fleet.compare import Run
from bench.support.measure import RESULTS, read

CSV = RESULTS / "fleet.csv"
TABLE = RESULTS / "fleet.md"

_HEAD = (
    "engines", "trace (working set / cache)", "policy", "cached tokens",
    "computed by the busiest worker",
    "time to first token, p50", "p99",
)  # fmt: skip


def keep(runs: list[Run]) -> None:
    """Write runs to the CSV file, replacing older runs of the same engines and traces.

    Also write the table of all runs.
    """
    measured = {(one.engine, one.workers, one.trace) for one in runs}
    older = [one for one in read(CSV, Run) if (one.engine, one.workers, one.trace) not in measured]
    with CSV.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Run._fields)
        writer.writerows([*older, *runs])
    TABLE.write_text(table(read(CSV, Run)))


def table(runs: Iterable[Run]) -> str:
    """Return a Markdown table: the mean and range of cached tokens over seeds, medians of the rest.

    The best mean of each trace is bold.
    """
    groups: dict[tuple[str, int, str], dict[str, list[Run]]] = {}
    for one in runs:
        group = groups.setdefault((one.engine, one.workers, one.trace), {})
        group.setdefault(one.policy, []).append(one)
    lines = [f"| {' | '.join(_HEAD)} |", "| --- | --- | --- |" + " ---: |" * 4]
    for policies in groups.values():
        most = max(_cached_mean(rounds) for rounds in policies.values())
        for rounds in policies.values():
            mean = _cached_mean(rounds)
            percent = f"{mean:.1f} %"
            cells = (
                *_names(rounds[0]),
                (f"**{percent}**" if mean == most > 0 else percent) + _cached_range(rounds),
                f"{_median(rounds, 'busiest_computed_tokens'):.0f}",
                f"{_median(rounds, 'first_token_p50_ms'):.0f} ms",
                f"{_median(rounds, 'first_token_p99_ms'):.0f} ms",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cached_mean(rounds: list[Run]) -> float:
    return round(statistics.fmean(one.cached_percent for one in rounds), 1)


def _cached_range(rounds: list[Run]) -> str:
    """Return the least and the most of several seeds, if they differ."""
    values = {one.cached_percent for one in rounds}
    if len({one.seed for one in rounds}) < 2 or len(values) < 2:
        return ""
    return f" ({min(values):.1f} to {max(values):.1f})"


def _names(run: Run) -> tuple[str, str, str]:
    ratio = run.working_set / (run.workers * run.cache_tokens)
    return f"{run.workers} {run.engine}", f"{run.trace} ({ratio:.1f})", run.policy


def _median(rounds: list[Run], figure: str) -> float:
    values: list[float] = [getattr(one, figure) for one in rounds]
    return statistics.median(values)
