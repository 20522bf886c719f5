"""Identify a predator-prey model from the Hudson Bay Company's record of hare and lynx pelts, 1900 to 1920.

Run it from anywhere: `python examples/lynx_hare/fit_lynx_hare.py`. `problem.toml` beside it is the same job for the
command line. Data: E. P. Odum, Fundamentals of Ecology (1953), after Hudson's Bay Company records, in thousands.
"""

from pathlib import Path

import jax.numpy as jnp

from sciad import identify as idt

HERE = Path(__file__).parent


def predator_prey(t, y, p):
    hare, lynx = y
    return jnp.stack([p["alpha"] * hare - p["beta"] * hare * lynx, p["delta"] * hare * lynx - p["gamma"] * lynx])


def main(out: Path = Path()) -> idt.Fit:
    model = idt.Model(predator_prey, states=("hare", "lynx"), initial={"hare": "hare0", "lynx": "lynx0"})
    guesses = {"alpha": 0.5, "beta": 0.03, "gamma": 0.8, "delta": 0.03}
    rates = [idt.Parameter(name, start=start, lower=1e-4, upper=10, scale="log") for name, start in guesses.items()]
    starts = [idt.Parameter("hare0", start=30, lower=1, upper=200), idt.Parameter("lynx0", start=5, lower=1, upper=200)]
    data = idt.Experiment(
        idt.read_csv(HERE / "lynx_hare.csv"),
        time="year",
        observe={"hare": "hare", "lynx": "lynx"},
        noise=idt.LogNormal(sigma="estimate"),
    )
    fit = idt.fit(idt.Problem(model, rates + starts, [data]), starts=16, seed=0)
    print(fit.summary())
    fit.plot(out / "fit.png")
    fit.save(out / "fit.json")
    return fit


if __name__ == "__main__":
    main()
