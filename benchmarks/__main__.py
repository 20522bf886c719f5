"""The command `python -m benchmarks [CASE ...] [--rounds N] [--quick]`, and `python -m benchmarks --report`."""

import os

for _name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # a machine's overrides would slow the NumPy peers down;
    os.environ.pop(_name, None)  # OpenBLAS reads them when NumPy is imported, which is below
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the peers compute on the CPU

import argparse  # noqa: E402
import importlib  # noqa: E402
import warnings  # noqa: E402

import jax  # noqa: E402

import sciad.core  # noqa: E402, F401  (sets XLA's threshold before JAX starts its backend, for every JAX tool alike)
from benchmarks import _report  # noqa: E402
from benchmarks._harness import Settings, write_records  # noqa: E402

CASES = (
    *("lotka_volterra", "lynx_hare", "pinene"),
    *("stiff", "blocks", "nonstiff", "ensembles", "first_call", "accuracy", "gradients", "derivatives"),
)


def main() -> None:
    """Measure the cases named on the command line (all by default), or write the report from earlier runs."""
    options = _read_options()
    if options.report:
        _report.write_report({name: importlib.import_module(f"benchmarks.{name}") for name in CASES})
        return
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="scipy")  # loose rungs of a ladder may overflow
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)  # a first call compiles
    # Every call is waited for: handing what XLA deems long to another thread costs 10 to 30 microseconds for nothing.
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # for every JAX tool alike
    busy, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if busy > 0.3 * cpus:
        print(f"This machine is busy (load {busy:.1f} on {cpus} cores): do not quote these times.\n")
    settings = Settings(rounds=options.rounds or (2 if options.quick else 7), quick=options.quick)
    for name in options.cases or CASES:
        case = importlib.import_module(f"benchmarks.{name}")
        print(f"{name}: {case.TITLE}")
        records = case.run(settings)
        path = write_records(name, records, quick=options.quick)
        _report.print_case(case, records)
        print(f"written to {path}\n")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"any of {', '.join(CASES)}; all by default")
    parser.add_argument("--rounds", type=int, help="rounds of each measurement, tools in turn (default 7)")
    parser.add_argument("--quick", action="store_true", help="2 rounds and fewer starts: to see that it works")
    parser.add_argument("--report", action="store_true", help="write docs/benchmarks.md from the newest results")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"got case {', '.join(sorted(unknown))}, expected any of {', '.join(CASES)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds: got {options.rounds}, expected at least 1")
    return options


if __name__ == "__main__":
    main()
