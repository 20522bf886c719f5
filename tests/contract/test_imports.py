"""Importing sciad: it changes no JAX setting, brings in no heavy library, and every public name has one home."""

import importlib
import subprocess
import sys

import pytest

ROOMS = ["sciad.core", "sciad.ode", "sciad.scipy"]  # rooms whose names are checked; add each as it opens
MIRRORS = ["sciad.scipy"]  # its names are SciPy's, whatever other rooms call theirs
HEAVY = ["pandas", "matplotlib", "typer", "rich", "diffrax", "optimistix", "optax"]


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_changes_no_jax_setting():
    settings = "dict(jax.config.values)"
    assert run(f"import jax; before = {settings}; import {', '.join(ROOMS)}; print(before == {settings})") == "True"


def test_import_starts_no_backend():
    code = f"import {', '.join(ROOMS)}; from jax._src import xla_bridge; print(len(xla_bridge._backends))"
    assert run(code) == "0"


def test_import_brings_in_no_heavy_library():
    assert run(f"import sys, {', '.join(ROOMS)}; print([m for m in {HEAVY} if m in sys.modules])") == "[]"


@pytest.mark.parametrize("name", ["sciad", *ROOMS])
def test_public_names(name):
    room = importlib.import_module(name)
    assert len(set(room.__all__)) == len(room.__all__)
    for public in room.__all__:
        assert getattr(room, public) is not None


def test_one_import_path():
    """A class or function is listed in one room only; the package itself repeats what users catch and compare with."""
    homes = {}
    for name in (room for room in ROOMS if room not in MIRRORS):
        for public in importlib.import_module(name).__all__:
            homes.setdefault(public, []).append(name)
    assert {public: rooms for public, rooms in homes.items() if len(rooms) > 1} == {}


@pytest.mark.parametrize("name", ROOMS)
def test_nothing_public_is_left_out(name):
    """Every name without an underscore in a room, its own modules aside, is listed."""
    room = importlib.import_module(name)
    visible = {key for key, value in vars(room).items() if not key.startswith("_") and not hasattr(value, "__path__")}
    assert visible == set(room.__all__)


def test_public_functions_and_classes_are_documented():
    for name in ROOMS:
        room = importlib.import_module(name)
        for public in room.__all__:
            value = getattr(room, public)
            if callable(value):
                assert value.__doc__, f"{name}.{public}"
