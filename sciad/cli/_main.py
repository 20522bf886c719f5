"""The entry point: one command a file, errors in one line, exit codes 0 (done), 1 (it failed), 2 (wrong input)."""

import os
import sys


def main() -> None:
    """Run the command line."""
    try:
        import typer
    except ImportError as error:
        sys.exit(f"error: the command line needs {error.name}; install it with pip install 'sciad[app]'")
    from sciad.cli import _check, _fit, _simulate

    app = typer.Typer(
        name="sciad",
        help="Differentiable scientific computing on JAX: identify the parameters of ODE models, simulate them, and "
        "check every room against SciPy.",
        epilog="Example: sciad fit examples/lynx_hare/problem.toml --out results",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command("fit", epilog="Example: sciad fit problem.toml --starts 16 --out results")(_fit.fit)
    app.command("simulate", epilog="Example: sciad simulate problem.toml --set alpha=0.6 --out curve.csv")(
        _simulate.simulate
    )
    app.command("check", epilog="Example: sciad check ode")(_check.check)
    sys.exit(_told(app))


def _options() -> None:
    """Prepare JAX for a command: float64, and the compilation cache in the user's cache folder."""
    from sciad.cli._jax import configure

    configure()


def _told(app) -> int:
    """Run a command; tell what is wrong in one line, without a traceback."""
    from sciad.core import SolveError

    try:
        app()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except (ValueError, TypeError, OSError) as error:
        return _fail(error, 2)
    except SolveError as error:
        return _fail(error, 1)
    except ImportError as error:
        return _fail(ImportError(f"{error.name} is not installed; install it with pip install 'sciad[app]'"), 2)
    except KeyboardInterrupt:
        return _fail(KeyboardInterrupt("interrupted"), 130)
    return 0


def _fail(error: BaseException, code: int) -> int:
    if os.environ.get("SCIAD_TRACEBACK", "") not in ("", "0"):
        raise error
    print("error: " + " ".join(str(error).split()), file=sys.stderr)
    return code
