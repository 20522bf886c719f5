"""What works with what: adjoint x mode x method, from the data that `docs/capabilities.md` is written from."""

import jax
import numpy as np
import pytest

from benchmarks import capabilities
from benchmarks.capabilities import MODES, SLOW, WORKS, X


def table():
    """Return all entries; what takes long to compile is marked."""
    for adjoint, mode, method in capabilities.entries():
        slow = method in SLOW.get(mode, ())
        yield pytest.param(adjoint, mode, method, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize(("adjoint", "mode", "method"), table())
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
