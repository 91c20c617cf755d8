"""The plot of the results of bench.gpu: `python -m bench.plot`."""

import csv
from collections import defaultdict

from bench.support.measure import RESULTS
from bench.support.plot import plt, save

# Measured on an H200: reads, and BLAKE3's arithmetic with and without a second pipe for additions.
READ_LIMIT = 4.38e12
INTEGER_LIMITS = {
    "BLAKE3's integer work, two pipes": 2.3e12,
    "… on the integer pipe only": 1.57e12,
}
NAMES = {"blake3": "mmhash BLAKE3, 256 bits", "xxh3": "mmhash xxh3 tree, 128 bits",
         "sglang": "SGLang 0.5.23, 64 bits", "torch.hash_tensor": "torch.hash_tensor, 64 bits",
         "read": "plain read"}  # fmt: skip


def main() -> None:
    """Draw bench/results/gpu.svg from gpu_points.csv."""
    lines: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    with (RESULTS / "gpu_points.csv").open() as file:
        for row in csv.DictReader(file):
            speed = float(row["gigabytes_per_second"]) * 1e9
            lines[row["measure"], row["what"]].append((int(row["nbytes"]), speed))
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.6), sharey=True)
    titles = {"device": "On the device, L2 cold", "call": "From the call to a value on the host"}
    for axes, (measure, title) in zip(panels, titles.items(), strict=True):
        for color, (what, name) in enumerate(NAMES.items()):
            if (measure, what) in lines:
                line = zip(*sorted(lines[measure, what]), strict=True)
                axes.plot(*line, "o-", ms=4, color=f"C{color}", label=name)
        axes.axhline(READ_LIMIT, color="gray", lw=0.8)
        axes.text(2**18, READ_LIMIT * 1.06, "read limit, 4.38 TB/s", color="gray", size=8)
        for (name, limit), up in zip(INTEGER_LIMITS.items(), (1.06, 0.78), strict=True):
            axes.axhline(limit, color="gray", lw=0.8, ls=":")
            axes.text(2**18, limit * up, name, color="gray", size=8)
        axes.set(xscale="log", yscale="log", title=title, xlabel="bytes", ylim=(1e9, 8e12))
        axes.set_xticks([2**exponent for exponent in range(18, 33, 2)])
        axes.set_xticklabels(["256 Ki", "1 Mi", "4 Mi", "16 Mi", "64 Mi", "256 Mi", "1 Gi", "4 Gi"])
        axes.grid(alpha=0.2)
        axes.legend(fontsize=8, loc="lower right")
    panels[0].set_ylabel("bytes per second")
    figure.suptitle("Hashing on one H200")
    save(figure, "gpu")


if __name__ == "__main__":
    main()
