"""What a failed solve says: which state limits it, whether the problem is stiff, and what to try."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciad import SolveError, Status, ode
from tests.ode.problems import growth_squared

STIFF = [ode.Rodas5P(), ode.BDF(), ode.Auto()]


def message_of(*args, **options):
    with pytest.raises(SolveError) as caught:
        ode.solve(*args, **options)
    assert str(caught.value) == caught.value.solution.message
    return str(caught.value)


def cell(t, y, rates):
    """A slow pool feeds a radical that vanishes at 1e6 a second."""
    slow, fast = rates
    return {"pool": -slow * y["pool"], "radical": fast * (0.1 * y["pool"] - y["radical"])}


CELL = {"pool": jnp.array([1.0, 2.0]), "radical": jnp.array([0.1, 0.2])}


class TestTooManySteps:
    def test_a_stiff_problem_with_an_explicit_method(self):
        text = message_of(cell, CELL, jnp.array([0.0, 10.0]), jnp.array([0.1, 1e6]), method=ode.Tsit5(), max_steps=300)
        assert "reached the largest number of steps allowed" in text
        assert "after 300 steps" in text
        assert "the problem is stiff there" in text
        assert "y['radical'][" in text
        assert "relaxes at a rate of 1e+06" in text
        assert "keeps an explicit step below 3e-06" in text
        assert "leave method out for one that changes over by itself" in text

    def test_the_advice_helps(self):
        solution = ode.solve(cell, CELL, jnp.array([0.0, 10.0]), jnp.array([0.1, 1e6]), max_steps=300)
        np.testing.assert_allclose(solution.ys["pool"][-1], CELL["pool"] * np.exp(-1), rtol=1e-4)

    def test_a_problem_that_is_not_stiff(self):
        """A fast oscillator: accuracy limits the step, and the message does not say stiff."""
        f = lambda t, y, w: {"x": w * y["v"], "v": -w * y["x"]}
        y0 = {"x": 1.0, "v": 0.0}
        text = message_of(f, y0, jnp.array([0.0, 10.0]), 1e3, method=ode.Tsit5(), max_steps=50)
        assert "stiff" not in text
        assert "changes fastest there" in text
        assert "y['" in text
        assert "raise max_steps" in text

    @pytest.mark.parametrize("method", STIFF)
    def test_a_stiff_method_is_not_told_that_the_problem_is_stiff(self, method):
        text = message_of(
            cell, CELL, jnp.array([0.0, 10.0]), jnp.array([0.1, 1e6]), method=method, max_steps=3, rtol=1e-8
        )
        assert "stiff" not in text
        assert "changes fastest there" in text

    def test_the_imaginary_part_of_a_state_has_its_name(self):
        f = lambda t, y, w: jnp.stack([0 * y[0], 1j * w * y[1]])
        text = message_of(f, jnp.array([1.0 + 0j, 1.0]), jnp.array([0.0, 10.0]), 1e3, method=ode.Rodas5P(), max_steps=9)
        assert "y[1] changes fastest there" in text

    def test_a_state_without_a_name(self):
        text = message_of(lambda t, y, r: -r * y, 1.0, jnp.array([0.0, 1.0]), 1e6, method=ode.Tsit5(), max_steps=99)
        assert "stiff there: y relaxes at a rate of 1e+06" in text

    def test_many_states(self):
        """No eigenvalues of a Jacobian of a thousand states are computed."""
        rates = jnp.ones(1000).at[613].set(1e5)
        f = lambda t, y, r: -r * (y - 2)
        text = message_of(f, jnp.ones(1000), jnp.array([0.0, 1.0]), rates, method=ode.Tsit5(), max_steps=3)
        assert "y[613] changes fastest there" in text


class TestBlowUp:
    @pytest.mark.parametrize("method", [None, ode.Tsit5(), ode.Rodas5P(), ode.BDF()])
    def test_the_state_and_the_time_are_named(self, method):
        f = lambda t, y, r: {"calm": -y["calm"], "wild": r * y["wild"] ** 2}
        y0 = {"calm": jnp.ones(3), "wild": jnp.array([0.1, 1.0])}
        text = message_of(f, y0, jnp.array([0.0, 2.0]), 1.0, method=method, max_steps=20_000)
        assert re.search(r"could not make the step small enough to meet the tolerance at t = (1|0\.9999\d*) ", text)
        assert "y['wild'][1] changes fastest there" in text
        assert "the solution may blow up" in text

    def test_a_negative_direction(self):
        text = message_of(growth_squared, -1.0, jnp.array([0.0, -2.0]), 1.0, max_steps=20_000)
        assert "at t = -1 " in text
        assert "y changes fastest there" in text


class TestNotFinite:
    def test_at_the_start(self):
        f = lambda t, y, r: jnp.log(y - r)
        text = message_of(f, jnp.array([2.0, 1.0]), jnp.array([0.0, 1.0]), 1.5)
        assert "not finite where it had to start" in text
        assert "look at y0, args and f" in text

    @pytest.mark.parametrize("method", [None, ode.Rodas5P(), ode.BDF()])
    def test_later(self, method):
        """A square root whose argument runs out at t = 1: the step shrinks there, the domain's edge is named."""
        f = lambda t, y, r: {"fine": -y["fine"], "edge": -1 + 0 * jnp.sqrt(y["edge"])}
        y0 = {"fine": 1.0, "edge": 1.0}
        text = message_of(f, y0, jnp.array([0.0, 2.0]), 1.0, method=method, max_steps=20_000)
        assert "could not make the step small enough" in text
        assert "at t = 1 " in text
        assert "y['edge']" in text

    def test_f_after_a_time(self):
        f = lambda t, y, r: jnp.stack([-y[0], jnp.where(t > 0.5, jnp.nan, -y[1])])
        text = message_of(f, jnp.ones(2), jnp.array([0.0, 1.0]), 1.0)
        assert "at t = 0.5 " in text


def test_a_batch_names_the_lane():
    solve = lambda r: ode.solve(growth_squared, 1.0, jnp.array([0.0, 1.0]), r, throw=False, max_steps=20_000)
    text = jax.vmap(solve)(jnp.array([0.5, 0.1, 2.0])).message
    assert text.startswith("1 of 3 lanes failed; lane 2: the solve could not make the step small enough")
    assert "at t = 0.5 " in text


def test_without_throw_the_solution_tells_the_same():
    options = {"method": ode.Tsit5(), "max_steps": 300}
    solution = ode.solve(cell, CELL, jnp.array([0.0, 10.0]), jnp.array([0.1, 1e6]), throw=False, **options)
    assert solution.status == Status.MAX_STEPS
    assert "the problem is stiff there: y['radical'][" in solution.message


def test_a_good_solve_says_so():
    assert ode.solve(growth_squared, 1.0, jnp.array([0.0, 0.5]), 1.0).message == "solved in 5 steps"
