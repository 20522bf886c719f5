"""Problems that are not stiff at equal error: Lotka-Volterra, FitzHugh-Nagumo, a free rigid body, the Pleiades.

The error is the largest relative error of a component at the end, |y - reference| / |reference|, against SciPy's DOP853
at rtol 1e-13. "Pleiades, 1e-04" means: the error that diffrax's Tsit5 achieves at rtol = atol = 1e-4 is wanted of all;
each tool takes the loosest tolerance (rtol = atol) from which on it achieves it, on a ladder from 1e-2 to 1e-11 (four
rungs a decade; SciPy two). The rivals are diffrax's Tsit5 and SciPy's RK45; the other methods stand there to inform.

SciPy: right-hand sides on Python floats (the Pleiades: NumPy). The JAX tools are one `jax.jit` of a function of the
parameters and the tolerance, and run in one process with the XLA threshold that importing sciad sets; diffrax has its
defaults, the end value saved. "not in jit" is the same `ode.solve` called from Python. Steps are those tried, of SciPy
those accepted.
"""

from collections.abc import Sequence
from functools import partial

from benchmarks import _speed_table
from benchmarks._equal_error import studies
from benchmarks._harness import Record, Settings
from benchmarks._speed_table import Rival
from benchmarks._tools import called_from_python, diffrax_tools, sciad_tools, scipy_tools
from benchmarks.problems import NONSTIFF

TITLE = "problems that are not stiff, at equal error"
ACCEPT = 1.0  # errors are compared with the one wanted

METHODS = ("Tsit5", "DOP853", "Auto")
RIVALS: dict[str, Sequence[Rival]] = {
    problem.name: (Rival("diffrax", 3.0, ("Tsit5",)), Rival("scipy", 100.0, ("RK45",))) for problem in NONSTIFF
}
TARGETS = _speed_table.targets(RIVALS)
SUMMARY = partial(_speed_table.speed_table, RIVALS)


def run(settings: Settings) -> list[Record]:
    """Walk every tool's ladder on every problem and compare."""
    tools = [
        *sciad_tools(METHODS),
        *called_from_python(METHODS),
        *scipy_tools(["RK45", "DOP853", "odeint"]),
        *diffrax_tools(["Tsit5", "Dopri8"]),
    ]
    return studies("nonstiff", NONSTIFF, tools, ("diffrax", "Tsit5"), settings)
