"""Events and jumps: times, states and all derivatives, against closed forms; cases of other solvers by number.

E9 to E11, E13 to E15, E17, E18 are of events and jumps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipe, ellipk

from sciad import SolveError, Status, ode
from tests.ode.methods import METHODS
from tests.tolerances import ACCUMULATED, ROUNDING, SCIPY

EVENTS = 1e-9  # event values and derivatives, solved with SOLVE
SOLVE = {"method": ode.Tsit5(), "rtol": 1e-11, "atol": 1e-13, "max_steps": 2048}
GRAVITY = 9.81


def constant(t, y, args):
    return jax.tree.map(jnp.ones_like, y)


def fall(t, y, args):
    return jnp.stack([y[1], -GRAVITY])


def both_modes(fun):
    """Return the compiled function x -> (value, Jacobian in reverse mode, Jacobian in forward mode)."""
    return jax.jit(lambda x: (fun(x), jax.jacrev(fun)(x), jax.jacfwd(fun)(x)))


def reverse_mode(fun):
    """Return the compiled function x -> (value, Jacobian in reverse mode)."""
    return jax.jit(lambda x: (fun(x), jax.jacrev(fun)(x)))


def assert_like(got, exact, x, rtol=EVENTS, atol=EVENTS):
    """Assert that value and Jacobians are those of the closed form `exact` at x."""
    value, *jacobians = got
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    close(value, exact(x))
    for jacobian in jacobians:
        close(jacobian, jax.jacfwd(exact)(x))


# -------------------------------------------------------------------------------------------- cases of other solvers


def test_e9_the_time_of_an_event_has_the_derivative_of_the_implicit_function():
    stop = ode.Event(lambda t, y, q: y - q)
    time = lambda q: ode.solve(constant, 0.0, jnp.array([0.0, 1.0]), q, events=stop, **SOLVE).events.t[0]
    assert_like(reverse_mode(time)(0.4), lambda q: q, 0.4, rtol=ROUNDING)


def test_e10_a_reset():
    reset = ode.Event(lambda t, y, p: y - p, reset=lambda t, y, p: 0 * y)
    end = lambda p: ode.solve(constant, 0.0, jnp.array([0.0, 1.0]), p, events=reset, **SOLVE).ys[1]
    got = reverse_mode(end)
    for p in (0.51, 0.7, 0.99):
        assert_like(got(p), lambda p: 1 - p, p, rtol=ROUNDING)


def test_e11_f_changes_at_an_event_in_time():
    switched = lambda t, y, tau: jnp.where(t < tau, 1.0, 0.0)
    event = ode.Event(lambda t, y, tau: tau - t, terminal=False)
    end = lambda tau: ode.solve(switched, 0.0, jnp.array([0.0, 2.0]), tau, events=event, **SOLVE).ys[1]
    assert_like(reverse_mode(end)(0.98), lambda tau: tau, 0.98, rtol=ROUNDING)


def test_f_changes_at_an_event_in_the_state():
    switched = lambda t, y, c: jnp.where(y < c, 1.0, 0.25)
    event = ode.Event(lambda t, y, c: y - c, terminal=False)
    end = lambda c: ode.solve(switched, 0.0, jnp.array([0.0, 2.0]), c, events=event, **SOLVE).ys[1]
    assert_like(reverse_mode(end)(0.9), lambda c: c + 0.25 * (2 - c), 0.9)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_e13_the_earliest_event_wins_whatever_the_order_of_the_listing(order):
    events = [ode.Event(lambda t, y, args: t - 1.0), ode.Event(lambda t, y, args: t - 0.5)]
    solution = ode.solve(constant, 0.0, [0.0, 2.0], events=[events[i] for i in order], **SOLVE)
    assert solution.success
    np.testing.assert_allclose(solution.events.t[0], 0.5, rtol=ROUNDING)
    assert int(solution.events.count) == 1
    assert solution.events.fired[0].tolist() == [i == 1 for i in order]


def test_e14_a_ball_thrown_from_the_ground():
    land = ode.Event(lambda t, y, args: y[0], direction=-1)
    start = lambda v: jnp.stack([0.0, v])
    time = lambda v: ode.solve(fall, start(v), jnp.array([0.0, 9.0]), events=land, **SOLVE).events.t[0]
    assert_like(reverse_mode(time)(3.0), lambda v: 2 * v / GRAVITY, 3.0)


@pytest.fixture(scope="module")
def reflected():
    """x' = v, v := -v at x = 10: the state at the given time and at 7."""
    flip = ode.Event(lambda t, y, args: y[0] - 10, reset=lambda t, y, args: y * jnp.array([1.0, -1.0]))
    drift = lambda t, y, args: jnp.stack([y[1], 0.0])

    def run(x):
        v, t = x
        return ode.solve(drift, jnp.stack([0.0, v]), jnp.stack([0.0, t, 7.0]), events=flip, **SOLVE).ys[1:, 0]

    return both_modes(run)


@pytest.mark.parametrize("apart", [0.0, 1e-15, -1e-15, 3e-16, -3e-16])
def test_e15_a_save_time_at_the_event_gets_the_state_before_it(reflected, apart):
    value, reverse, forward = reflected(jnp.array([2.0, 5.0 * (1 + apart)]))
    np.testing.assert_allclose(value, [10.0, 6.0], rtol=ACCUMULATED)
    for jacobian in (reverse, forward):
        np.testing.assert_allclose(jacobian[:, 0], [5.0, -7.0], rtol=ACCUMULATED)


@pytest.mark.parametrize(
    "name", [m if m in ("Tsit5", "BDF") else pytest.param(m, marks=pytest.mark.slow) for m in METHODS]
)
def test_e17_rates_that_are_constant_by_pieces(name):
    def growth(t, y, p):
        return y * jnp.where(t < 1, p[0], jnp.where(t < 2, p[1], jnp.where(t < 3, p[2], p[3])))

    options = SOLVE | {"method": METHODS[name], "rtol": 1e-10}
    jumps = jnp.array([3.0, 1.0, 2.0])
    end = lambda p: ode.solve(growth, 1.0, jnp.array([0.0, 4.0]), p, jumps=jumps, **options).ys[1]
    tolerance = 1e-8 if name == "BDF" else EVENTS  # BDF starts anew with order 1
    assert_like(reverse_mode(end)(_P), lambda p: jnp.exp(p.sum()), _P, rtol=tolerance)


_P = jnp.array([0.2, -0.1, 0.3, 0.15])


def test_e18_the_time_of_a_switch_is_differentiable():
    switched = lambda t, y, tau: jnp.where(t > tau, 1.0, 0.0)
    end = lambda tau: ode.solve(switched, 0.0, jnp.array([0.0, 2.0]), tau, jumps=tau[None], **SOLVE).ys[1]
    assert_like(reverse_mode(end)(jnp.asarray(0.98)), lambda tau: 2 - tau, jnp.asarray(0.98), rtol=ROUNDING)


# ------------------------------------------------------------------------------------------------- whole small models


def ball(x, **options):
    """Return the times of the first three bounces, and the height at t = 2, from (height, restitution)."""
    height, restitution = x
    bounce = ode.Event(lambda t, y, r: y[0], direction=-1, reset=lambda t, y, r: jnp.stack([y[0], -r * y[1]]))
    y0 = jnp.stack([height, jnp.zeros_like(height)])
    solution = ode.solve(fall, y0, jnp.array([0.0, 2.0]), restitution, events=bounce, max_events=8, **SOLVE, **options)
    return jnp.append(solution.events.t[:4], solution.ys[1, 0])


def ball_in_closed_form(x):
    height, restitution = x
    times = [jnp.sqrt(2 * height / GRAVITY)]
    speed = GRAVITY * times[0]
    for _ in range(3):
        speed = restitution * speed
        times.append(times[-1] + 2 * speed / GRAVITY)
    left = 2.0 - times[-1]
    return jnp.stack([*times, restitution * speed * left - GRAVITY * left**2 / 2])


@pytest.fixture(scope="module")
def bouncing():
    return both_modes(ball)


def test_a_bouncing_ball(bouncing):
    x = jnp.array([1.0, 0.7])
    assert_like(bouncing(x), ball_in_closed_form, x)


@pytest.mark.slow
def test_second_derivatives_of_a_bouncing_ball():
    x = jnp.array([1.0, 0.7])
    np.testing.assert_allclose(jax.hessian(ball)(x), jax.hessian(ball_in_closed_form)(x), rtol=1e-8, atol=1e-8)


def test_lanes_of_a_batch_have_their_own_events(bouncing):
    xs = jnp.array([[1.0, 0.7], [0.3, 0.9], [1.5, 0.6]])
    value, reverse, _ = jax.jit(jax.vmap(lambda x: (ball(x), jax.jacrev(ball)(x), 0.0)))(xs)
    for lane, x in enumerate(xs):
        alone = bouncing(x)
        np.testing.assert_array_equal(value[lane], alone[0])
        np.testing.assert_allclose(reverse[lane], alone[1], rtol=ROUNDING, atol=ROUNDING)


def test_a_pendulum_through_zero():
    swing = lambda t, y, args: jnp.stack([y[1], -jnp.sin(y[0])])
    through = ode.Event(lambda t, y, args: y[0], terminal=False)

    def crossings(angle):
        y0 = jnp.stack([angle, jnp.zeros_like(angle)])
        return ode.solve(swing, y0, jnp.array([0.0, 12.0]), events=through, max_events=8, **SOLVE).events.t[:3]

    value, reverse, forward = both_modes(crossings)(1.2)
    m = np.sin(0.6) ** 2
    quarter, slope = ellipk(m), (ellipe(m) / (1 - m) - ellipk(m)) / (2 * m) * np.sin(0.6) * np.cos(0.6)
    np.testing.assert_allclose(value, quarter * np.array([1, 3, 5]), rtol=EVENTS)
    np.testing.assert_allclose(reverse, slope * np.array([1, 3, 5]), rtol=EVENTS)
    np.testing.assert_allclose(forward, reverse, rtol=ACCUMULATED)


def test_a_dosing_schedule_with_a_lag_time():
    """One compartment with first-order absorption: amounts by superposition (Bateman's function)."""
    times, t_save = jnp.array([0.0, 6.0, 12.0, 12.0]), jnp.array([0.0, 3.0, 7.0, 11.0, 24.0])

    def absorb(t, y, p):
        ka, ke = p
        return jnp.stack([-ka * y[0], ka * y[0] - ke * y[1]])

    def central(x):
        ka, ke, lag, *amounts = x
        doses = ode.Jumps(times + lag, jnp.stack([jnp.stack(amounts), jnp.zeros(4)], 1))
        return ode.solve(absorb, jnp.zeros(2), t_save, (ka, ke), jumps=doses, **SOLVE).ys[:, 1]

    def bateman(x):
        ka, ke, lag, *amounts = x
        since = t_save[:, None] - times - lag
        shape = ka / (ka - ke) * (jnp.exp(-ke * since) - jnp.exp(-ka * since))
        return jnp.sum(jnp.where(since > 0, shape, 0.0) * jnp.stack(amounts), 1)

    x = jnp.array([1.1, 0.15, 0.4, 100.0, 50.0, 80.0, 10.0])
    assert_like(both_modes(central)(x), bateman, x, atol=100 * EVENTS)  # amounts of the size of 100


def test_an_infusion_of_three_minutes_is_never_stepped_over():
    """State and rate of infusion; a day of nothing before it."""
    flow = lambda t, y, k: jnp.stack([y[1] - k * y[0], 0.0])
    start, length = 24.0, 0.05

    def end(x):
        k, rate, start = x
        table = ode.Jumps(
            jnp.stack([start, start + length]),
            jnp.stack([jnp.stack([0.0 * rate, rate]), -jnp.stack([0.0 * rate, rate])]),
        )
        return ode.solve(flow, jnp.zeros(2), jnp.array([0.0, 48.0]), k, jumps=table, **SOLVE).ys[1, 0]

    def exact(x):
        k, rate, start = x
        return rate / k * (1 - jnp.exp(-k * length)) * jnp.exp(-k * (48.0 - start - length))

    x = jnp.array([0.1, 20.0, start])
    assert_like(both_modes(end)(x), exact, x)


def test_a_thermostat():
    """Temperature and heater (0 or 1): heats up to 22, cools down to 18."""
    cool = lambda t, y, p: jnp.stack([-p[0] * (y[0] - 10.0) + p[1] * y[1], 0.0])
    switch = lambda to: lambda t, y, p: jnp.stack([y[0], to + 0.0 * y[1]])
    events = [
        ode.Event(lambda t, y, p: y[0] - 22.0, direction=1, reset=switch(0.0)),
        ode.Event(lambda t, y, p: y[0] - 18.0, direction=-1, reset=switch(1.0)),
    ]

    def run(p):
        solution = ode.solve(
            cool, jnp.array([15.0, 1.0]), jnp.array([0.0, 16.0]), p, events=events, max_events=6, **SOLVE
        )
        return jnp.append(solution.events.t[:3], solution.ys[1, 0])

    def exact(p):
        k, power = p
        hot = 10.0 + power / k
        up = lambda a: jnp.log((hot - a) / (hot - 22.0)) / k
        down = jnp.log(12.0 / 8.0) / k
        times = jnp.cumsum(jnp.stack([up(15.0), down, up(18.0)]))
        return jnp.append(times, 10.0 + 12.0 * jnp.exp(-k * (16.0 - times[2])))

    p = jnp.array([0.1, 2.0])
    assert float(exact(p)[2]) < 16 < float(exact(p)[2]) + 4  # the third event is the last
    assert_like(reverse_mode(run)(p), exact, p)


def test_random_sawteeth_beside_events_without_resets():
    """y' = a, y := y - L at y = L, and a clock that rings at each root of a sine: counts, values and gradients."""
    wrap = ode.Event(lambda t, y, p: y[0] - p[1], direction=1, reset=lambda t, y, p: jnp.stack([y[0] - p[1], y[1]]))
    ring = ode.Event(lambda t, y, p: jnp.sin(3 * y[1] + p[0]), terminal=False)
    rise = lambda t, y, p: jnp.stack([p[0], 1.0 + 0.0 * y[1]])

    def end(x):
        a, length, start = x
        y0 = jnp.stack([start * length, 0.0])
        options = {"events": [wrap, ring], "max_events": 128, "method": ode.Tsit5(), "throw": False}
        solution = ode.solve(rise, y0, jnp.array([0.0, 4.0]), (a, length), **options)
        return solution.ys[1, 0], solution.events.count

    rng = np.random.default_rng(0)
    x = np.stack([rng.uniform(0.1, 8, 200), rng.uniform(0.3, 3, 200), rng.uniform(0, 0.99, 200)], 1)
    (value, count), gradient = jax.jit(jax.vmap(jax.value_and_grad(end, has_aux=True)))(x)
    a, length, start = x.T
    turns = np.floor(start + 4 * a / length)
    rings = np.floor((12 + a) / np.pi) - np.floor(a / np.pi)
    np.testing.assert_array_equal(count, turns + rings)
    np.testing.assert_allclose(value, (start - turns) * length + 4 * a, atol=ACCUMULATED)
    np.testing.assert_allclose(gradient, np.stack([0 * a + 4, start - turns, length], 1), atol=ACCUMULATED)


# ------------------------------------------------------------------------------------------------------- what they mean


def test_both_roots_of_a_double_crossing_inside_one_step_are_found():
    dip = ode.Event(lambda t, y, args: (t - 5.123) ** 2 - 1e-4, terminal=False)
    solution = ode.solve(lambda t, y, args: -0.1 * y, 1.0, [0.0, 10.0], events=dip, rtol=1e-3, atol=1e-3)
    assert int(solution.stats["num_accepted"]) < 20  # steps are far longer than the dip
    np.testing.assert_allclose(solution.events.t[:2], [5.113, 5.133], rtol=ACCUMULATED)
    assert int(solution.events.count) == 2


def test_direction():
    """cos t changes its sign at odd multiples of pi/2."""
    events = [ode.Event(lambda t, y, args: y[0], direction=d, terminal=False) for d in (1, -1, 0)]
    oscillate = lambda t, y, args: jnp.stack([y[1], -y[0]])
    found = ode.solve(oscillate, jnp.array([1.0, 0.0]), [0.0, 9.0], events=events, rtol=1e-10, atol=1e-12).events
    assert int(found.count) == 3
    np.testing.assert_allclose(found.t[:3], np.pi / 2 * np.array([1, 3, 5]), rtol=EVENTS)
    assert found.fired[:3].tolist() == [[False, True, True], [True, False, True], [False, True, True]]


def test_a_stop_at_the_third_occurrence():
    event = ode.Event(lambda t, y, args: jnp.sin(np.pi * t), terminal=3)
    solution = ode.solve(constant, 0.5, [0.5, 9.0], events=event, rtol=1e-6)
    np.testing.assert_allclose(solution.events.t[:3], [1.0, 2.0, 3.0], rtol=ACCUMULATED)
    assert int(solution.events.count) == 3


def test_going_backward_in_time():
    event = ode.Event(lambda t, y, args: y - 0.5)
    time = lambda y1: ode.solve(constant, y1, jnp.array([1.0, 0.0]), events=event, **SOLVE).events.t[0]
    assert_like(reverse_mode(time)(0.9), lambda y1: 1.0 - (y1 - 0.5), 0.9, rtol=ROUNDING)


def test_events_that_coincide_fire_together_and_their_resets_follow_each_other():
    events = [
        ode.Event(lambda t, y, args: t - 1.0, reset=lambda t, y, args: y + 1.0),
        ode.Event(lambda t, y, args: y - 1.0, reset=lambda t, y, args: 2.0 * y),
    ]
    solution = ode.solve(constant, 0.0, [0.0, 1.5], events=events, **SOLVE)
    np.testing.assert_allclose(solution.ys[1], 4.5, rtol=ACCUMULATED)
    assert solution.events.fired[0].tolist() == [True, True]
    assert int(solution.events.count) == 1


def test_a_stop_leaves_what_comes_after_it_unknown_and_says_where_it_was():
    stop = ode.Event(lambda t, y, args: y["a"] - 0.5)
    solution = ode.solve(constant, {"a": 0.0}, [0.0, 0.25, 1.0], events=stop, **SOLVE)
    np.testing.assert_allclose(solution.ys["a"][:2], [0.0, 0.25], rtol=ROUNDING)
    assert np.isnan(solution.ys["a"][2])
    assert solution.success
    assert "t = 0.5" in solution.message
    np.testing.assert_allclose(solution.events.y["a"][0], 0.5, rtol=ROUNDING)
    assert np.all(np.isnan(solution.events.t[1:]))


def test_dense_output_across_events():
    flip = ode.Event(lambda t, y, args: y[0] - 1.0, reset=lambda t, y, args: y - jnp.array([1.0, 0.0]))
    drift = lambda t, y, args: jnp.stack([jnp.ones_like(y[0]), -y[1]])
    solution = ode.solve(drift, jnp.array([0.0, 1.0]), [0.0, 3.5], events=flip, dense=True, **SOLVE)
    ts = jnp.array([0.0, 0.3, 1.0, 1.2, 2.0, 2.9, 3.5])
    np.testing.assert_allclose(solution.interpolate(ts)[:, 0], [0.0, 0.3, 1.0, 0.2, 1.0, 0.9, 0.5], atol=ACCUMULATED)
    np.testing.assert_allclose(solution.interpolate(ts)[:, 1], np.exp(-ts), rtol=1e-8)  # order 4 inside a step


def test_against_scipy():
    orbit = lambda t, y: [y[2], y[3], -y[0] / np.hypot(y[0], y[1]) ** 3, -y[1] / np.hypot(y[0], y[1]) ** 3]
    y0 = np.array([0.4, 0.0, 0.0, 2.0])
    theirs = solve_ivp(orbit, (0, 15), y0, method="DOP853", events=lambda t, y: y[0] + 0.3 * y[1], **SCIPY)
    kepler = lambda t, y, args: jnp.concatenate([y[2:], -y[:2] / jnp.sum(y[:2] ** 2) ** 1.5])
    event = ode.Event(lambda t, y, args: y[0] + 0.3 * y[1], terminal=False)
    ours = ode.solve(kepler, y0, [0.0, 15.0], events=event, method=ode.DOP853(), rtol=1e-11, atol=1e-13)
    count = int(ours.events.count)
    assert count == len(theirs.t_events[0]) > 2
    np.testing.assert_allclose(ours.events.t[:count], theirs.t_events[0], rtol=1e-8)  # errors grow along the orbit
    np.testing.assert_allclose(ours.events.y[:count], theirs.y_events[0], rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_single_precision():
    bounce = ode.Event(lambda t, y, r: y[0], direction=-1, reset=lambda t, y, r: jnp.stack([y[0], -r * y[1]]))

    def second(r):
        y0 = jnp.array([1.0, 0.0], jnp.float32)
        return ode.solve(fall, y0, jnp.array([0.0, 2.0], jnp.float32), r, events=bounce, method=ode.Tsit5()).events.t[1]

    value, slope = jax.jit(jax.value_and_grad(second))(jnp.float32(0.7))
    first = np.sqrt(2 / GRAVITY)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, first * (1 + 2 * 0.7), rtol=1e-4)  # the default rtol in float32
    np.testing.assert_allclose(slope, 2 * first, rtol=1e-3)


# -------------------------------------------------------------------------------------------------- failures, messages


def test_events_that_pile_up_are_a_failure():
    bounce = ode.Event(lambda t, y, args: y[0], direction=-1, reset=lambda t, y, args: y * jnp.array([1.0, -0.5]))
    y0 = jnp.array([1.0, 0.0])
    with pytest.raises(SolveError, match=r"met more events than allowed at t = 1\.35.*raise max_events"):
        ode.solve(fall, y0, [0.0, 5.0], events=bounce, max_events=16, method=ode.Tsit5())
    failed = ode.solve(fall, y0, [0.0, 5.0], events=bounce, max_events=16, method=ode.Tsit5(), throw=False)
    assert int(failed.status) == Status.MAX_EVENTS
    assert np.isnan(failed.ys[1, 0])
    assert int(failed.events.count) == 16
    first = np.sqrt(2 / GRAVITY)
    np.testing.assert_allclose(failed.events.t, first * (3 - 4 * 0.5 ** np.arange(1, 17)), rtol=1e-4)  # default rtol


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": lambda t, y, a: y}, "ode.solve: events: got .* expected ode.Event"),
        ({"events": ode.Event(lambda t, y, a: y > 0)}, "condition of events.0.: got bool.*expected one real number"),
        ({"events": ode.Event(lambda t, y, a: jnp.stack([y, y]))}, r"condition of events.0.: got .*shape \(2,\)"),
        ({"events": ode.Event(lambda t, y, a: y, direction=2)}, "direction of events.0.: got 2, expected -1, 0 or 1"),
        ({"events": ode.Event(lambda t, y, a: y, reset=lambda t, y, a: (y, y))}, "reset of events.0.: got"),
        ({"jumps": 0.5}, "ode.solve: jumps: got 0.5, expected a 1-D array"),
        ({"jumps": [0.5, np.nan]}, "jumps: got .*expected finite times"),
        ({"jumps": ode.Jumps(jnp.array([0.5]), jnp.array(1.0))}, r"amounts of jumps: got shape \(\), expected \(1,\)"),
        ({"jumps": [0.5], "adjoint": "gauss"}, "adjoint: got gauss"),
        ({"max_events": 0}, "max_events: got 0, expected at least 1"),
        ({"jumps": ode.Jumps(jnp.array([0.5]), jnp.array([1.0])), "mass": np.ones(1)}, "with a mass matrix"),
    ],
)
def test_wrong_calls(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ode.solve(constant, 0.0, [0.0, 1.0], **options)


@pytest.mark.slow
def test_few_checkpoints_across_events():
    x = jnp.array([1.0, 0.7])
    few = jax.jit(jax.jacrev(lambda x: ball(x, adjoint=ode.Discrete(checkpoints=5))))(x)
    np.testing.assert_allclose(few, jax.jacfwd(ball_in_closed_form)(x), rtol=EVENTS)
