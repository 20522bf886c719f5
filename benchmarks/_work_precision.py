"""Work-precision figures: a panel a problem, a line a tool, time over achieved error, both logarithmic."""

import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks._harness import LADDER, Record, pick, unique

WIDTH = 3  # panels in a row
STYLES = {"sciad": ("-", "o", 1.8), "cvode": ("--", "s", 1.4), "scipy": (":", "^", 1.0), "diffrax": ("-.", "v", 1.0)}


def draw_curves(records: Sequence[Record], path: Path) -> None:
    """Draw the ladders among the records."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times = [r for r in pick(records, quantity=f"{LADDER} time") if r.error is not None and r.error > 0]
    problems, contenders = unique(r.problem for r in times), unique((r.tool, r.variant) for r in times)
    colours = {who: plt.get_cmap("tab20")(k % 20) for k, who in enumerate(contenders)}
    num_rows, num_columns = math.ceil(len(problems) / WIDTH), min(WIDTH, len(problems))
    size = (3.6 * num_columns, 3.0 * num_rows + 0.9)
    figure, grid = plt.subplots(num_rows, num_columns, figsize=size, layout="constrained", squeeze=False)
    for axes in grid.ravel()[len(problems) :]:
        axes.set_axis_off()
    for problem, axes in zip(problems, grid.ravel(), strict=False):
        for tool, variant in contenders:
            mine = [r for r in pick(times, problem=problem, tool=tool, variant=variant) if r.error < 1.0]
            line, mark, width = STYLES.get(tool, ("-", ".", 1.0))
            axes.plot(
                *([r.error for r in mine], [r.median for r in mine], line),
                marker=mark,
                markersize=3,
                linewidth=width,
                color=colours[tool, variant],
                label=f"{tool}: {variant}",
            )
        axes.set(xscale="log", yscale="log", title=problem, xlabel="achieved error", ylabel="seconds")
        axes.invert_xaxis()
        axes.grid(alpha=0.3)
    handles, labels = grid.ravel()[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
