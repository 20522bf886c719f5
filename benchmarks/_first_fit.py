"""Run by path in a process of its own: fit the hare-lynx record `runs` times by the example's script, and print when.

    python benchmarks/_first_fit.py OUT RUNS

One JSON object on standard output, an entry a run: `begin`, `fitted` (the fit is there) and `done` (summary, figure
and JSON written), in seconds since the epoch, and the fitted `params`.
"""

import contextlib
import json
import sys
import time
from pathlib import Path


def main(out: Path, runs: int) -> None:
    """Time the script's own `main`, noting when its fit returns."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "lynx_hare"))
    import fit_lynx_hare as script

    seen: dict[str, list] = {"begin": [], "fitted": [], "done": [], "params": []}
    fit = script.idt.fit

    def noted(*args, **kwargs):
        result = fit(*args, **kwargs)
        seen["fitted"].append(time.time())
        seen["params"].append(result.params)
        return result

    script.idt.fit = noted
    with contextlib.redirect_stdout(sys.stderr):
        for _ in range(runs):
            seen["begin"].append(time.time())
            script.main(out)
            seen["done"].append(time.time())
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
