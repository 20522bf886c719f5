"""What works with what: adjoint x mode x method, from the data that `docs/capabilities.md` is written from."""

import jax
import numpy as np
import pytest

from benchmarks import capabilities
from benchmarks.capabilities import MODES, WORKS, X

# One method for each adjoint and mode, and one mode of each direction for each method; the rest of the table is slow.
QUICK = {("Discrete", "jvp"), ("Discrete", "vjp")}


def is_quick(adjoint, mode, method):
    of_one_method = method == "Tsit5" and mode != "hessian"
    raises = capabilities.expected(adjoint, mode) != WORKS
    return raises or of_one_method or ((adjoint, mode) in QUICK and method != "Auto")


TABLE = [pytest.param(*entry, marks=() if is_quick(*entry) else pytest.mark.slow) for entry in capabilities.entries()]


@pytest.mark.parametrize(("adjoint", "mode", "method"), TABLE)
def test_capability(adjoint, mode, method):
    if method.startswith("diffrax."):
        pytest.importorskip("diffrax")
    run = jax.jit(MODES[mode](capabilities.solved(adjoint, method)))
    expected = capabilities.expected(adjoint, mode)
    if expected != WORKS:
        with pytest.raises((TypeError, ValueError, NotImplementedError), match=expected):
            run(X)
        return
    exact = MODES[mode](capabilities.exact)(X)
    # a solve at rtol 1e-5; BDF's first steps are of order 1, and its derivatives of less accuracy than the states
    np.testing.assert_allclose(run(X), exact, rtol=0, atol=1e-3 * np.abs(exact).max())


def test_the_page_is_up_to_date():
    """If not: `python -m benchmarks.capabilities`."""
    assert capabilities.PAGE.read_text() == capabilities.page()
