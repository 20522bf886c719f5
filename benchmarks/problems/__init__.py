"""The initial value problems of the ODE benchmarks, each in the words of JAX, of SciPy and (by name) of C.

`_problem` says what a problem is and how an answer is judged; then one file a kind. End states that are published stand
beside the problem; the others come from `_references`, which says how they were made.
"""

from benchmarks.problems._problem import Problem
from benchmarks.problems.kinetics import HIRES, OREGO, POLLU, ROBER_1E5, ROBER_1E11
from benchmarks.problems.large import BLOCKS_300, BLOCKS_30000, BRUSSELATOR_30000
from benchmarks.problems.mechanics import PLEIADES, RIGID_BODY
from benchmarks.problems.oscillators import FITZHUGH_NAGUMO, LOTKA_VOLTERRA, VAN_DER_POL, VAN_DER_POL_SCALED
from benchmarks.problems.transistor import TRANSISTOR_AMPLIFIER

STIFF = (ROBER_1E5, ROBER_1E11, HIRES, OREGO, VAN_DER_POL, POLLU)
NONSTIFF = (LOTKA_VOLTERRA, FITZHUGH_NAGUMO, RIGID_BODY, PLEIADES)
BY_NAME = {
    problem.name: problem
    for problem in (
        *STIFF,
        *NONSTIFF,
        VAN_DER_POL_SCALED,
        BLOCKS_300,
        BLOCKS_30000,
        BRUSSELATOR_30000,
        TRANSISTOR_AMPLIFIER,
    )
}

__all__ = ["BY_NAME", "NONSTIFF", "STIFF", "Problem"]
