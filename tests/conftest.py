"""Tests run in float64, on CPU, with JAX's persistent compilation cache so that a second run compiles nothing."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

import sciad.core  # noqa: F401  (before jax starts a backend)

ROOT = Path(__file__).parents[1]

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", os.environ.get("SCIAD_TEST_CACHE", str(ROOT / ".pytest_cache" / "xla")))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public reference data beside a checkout; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared"
    if not (folder / "reference").is_dir():
        pytest.skip("the public reference data (../shared/reference) is not on this machine")
    return folder
