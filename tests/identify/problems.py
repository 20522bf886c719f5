"""Models and data that several tests use, at module level so that a compiled program serves them all."""

import numpy as np

from sciad import identify as idt

LYNX_HARE = np.array(
    [
        [1900, 30.0, 4.0],
        [1901, 47.2, 6.1],
        [1902, 70.2, 9.8],
        [1903, 77.4, 35.2],
        [1904, 36.3, 59.4],
        [1905, 20.6, 41.7],
        [1906, 18.1, 19.0],
        [1907, 21.4, 13.0],
        [1908, 22.0, 8.3],
        [1909, 25.4, 9.1],
        [1910, 27.1, 7.4],
        [1911, 40.3, 8.0],
        [1912, 57.0, 12.3],
        [1913, 76.6, 19.5],
        [1914, 52.3, 45.7],
        [1915, 19.5, 51.1],
        [1916, 11.2, 29.7],
        [1917, 7.6, 15.8],
        [1918, 14.6, 9.7],
        [1919, 16.2, 10.1],
        [1920, 24.7, 8.6],
    ]
)
LYNX_HARE_OPTIMUM = {
    "alpha": 0.540014,
    "beta": 0.0271561,
    "gamma": 0.796599,
    "delta": 0.0237021,
    "hare0": 34.5992,
    "lynx0": 5.84373,
    "sigma_hare": 0.218380,
    "sigma_lynx": 0.220084,
}
LYNX_HARE_VALUE = 122.92595  # negative log-likelihood, with the log-y term


def lynx_hare(rows=None):
    """Return the hare and lynx problem, with equations as text."""
    table = LYNX_HARE if rows is None else LYNX_HARE[rows]
    model = idt.Model(
        {"hare": "alpha*hare - beta*hare*lynx", "lynx": "delta*hare*lynx - gamma*lynx"},
        initial={"hare": "hare0", "lynx": "lynx0"},
    )
    return idt.Problem(model, lynx_hare_parameters(), [lynx_hare_experiment(table)])


def lynx_hare_parameters():
    guesses = {"alpha": 0.5, "beta": 0.03, "gamma": 0.8, "delta": 0.03}
    rates = [idt.Parameter(name, start=start, lower=1e-4, upper=10, scale="log") for name, start in guesses.items()]
    return [*rates, idt.Parameter("hare0", 30, 1, 200), idt.Parameter("lynx0", 5, 1, 200)]


def lynx_hare_experiment(table=LYNX_HARE):
    columns = dict(zip(("year", "hare", "lynx"), table.T, strict=True))
    return idt.Experiment(columns, time="year", observe={"hare": "hare", "lynx": "lynx"}, noise=idt.LogNormal())


TIMES = np.linspace(0.0, 4.0, 12)
DECAY = idt.Model({"x": "-k*x"}, initial={"x": "x0"})
WIGGLE = 0.05 * np.cos(9 * TIMES)  # stands for noise: the same on every machine
MEASURED = 2.5 * np.exp(-0.8 * TIMES) + WIGGLE


def decay(measured=MEASURED, parameters=None, **options):
    """Return the problem x' = -k x, x(0) = x0, measured at `TIMES` unless `data` is given."""
    parameters = decay_parameters() if parameters is None else parameters
    options = {"data": {"t": TIMES, "x": measured}, "time": "t", "observe": {"x": "x"}} | options
    return idt.Problem(DECAY, parameters, [idt.Experiment(options.pop("data"), **options)])


def decay_parameters(**changed):
    """Return k on a log scale and x0; a change gives other fields of one of them."""
    k = {"start": 1.0, "lower": 1e-3, "upper": 1e2, "scale": "log"} | changed.get("k", {})
    x0 = {"start": 1.0, "lower": 0.0, "upper": 10.0} | changed.get("x0", {})
    return [idt.Parameter("k", **k), idt.Parameter("x0", **x0)]


def exponential(t, k, x0):
    return x0 * np.exp(-k * t)
