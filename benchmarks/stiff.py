"""Stiff problems at equal error: ROBER to 1e5 and 1e11, HIRES, OREGO, van der Pol (mu = 1000, to 2000) and POLLU.

The error is the largest relative error of a component at the end, |y - reference| / |reference|; references are those
of the IVP Test Set (release 2.4), and for ROBER at 1e5 SciPy's Radau at rtol 1e-13. "ROBER to 1e5, 1e-04" means: the
error that native CVODE achieves at rtol 1e-4 is wanted of all; each tool takes the loosest tolerance from which on it
achieves it, on a ladder from 1e-2 to 1e-11 (four rungs a decade; SciPy two), with the same ratio of atol to rtol. A
tool that never achieves it has no time.

CVODE (SUNDIALS 6 as Debian's libsundials-dev has it): BDF with the dense solver and the Jacobian written out, all in
C, compiled here with `gcc -O3 -march=native`; a call creates, solves and frees, and is timed from Python (about 2 µs).
SciPy: right-hand sides on Python floats, the Jacobian given; "LSODA, odeint" is the same code without Python between
the steps. diffrax: PIDController with its defaults, the end value saved. The JAX tools are one `jax.jit` of a function
of the parameters and the tolerance, and run in one process with the XLA threshold that importing sciad sets. "not in
jit" is the same `ode.solve` called from Python. Steps are those tried, of SciPy and CVODE those accepted.
"""

from collections.abc import Sequence
from functools import partial

from benchmarks import _speed_table
from benchmarks._equal_error import studies
from benchmarks._harness import Record, Settings
from benchmarks._speed_table import Rival
from benchmarks._tools import called_from_python, cvode_tools, diffrax_tools, sciad_tools, scipy_tools
from benchmarks.problems import STIFF

TITLE = "stiff problems at equal error"
ACCEPT = 1.0  # errors are compared with the one wanted

METHODS = ("Rodas5P", "BDF", "Auto")
FACTORS = {"POLLU": (1.3, 10.0, 10.0)}  # over CVODE, SciPy, diffrax; for the others as below
SOLVE_IVP = Rival("scipy", None, ("LSODA", "BDF", "Radau"))


def rivals(cvode: float, scipy: float, diffrax: float) -> Sequence[Rival]:
    """Return the rivals with the factors wanted; SciPy's fastest of all methods, and to inform that of solve_ivp."""
    return Rival("cvode", cvode), Rival("scipy", scipy), SOLVE_IVP, Rival("diffrax", diffrax)


RIVALS = {problem.name: rivals(*FACTORS.get(problem.name, (3.0, 20.0, 20.0))) for problem in STIFF}
TARGETS = _speed_table.targets(RIVALS)
SUMMARY = partial(_speed_table.speed_table, RIVALS)


def run(settings: Settings) -> list[Record]:
    """Walk every tool's ladder on every problem and compare."""
    tools = [
        *sciad_tools(METHODS),
        *called_from_python(METHODS),
        *cvode_tools(["dense"]),
        *scipy_tools(["LSODA", "odeint", "BDF", "Radau"]),
        *diffrax_tools(["Kvaerno3", "Kvaerno5", "Kvaerno4"]),
    ]
    return studies("stiff", STIFF, tools, ("cvode", "BDF, dense"), settings)
