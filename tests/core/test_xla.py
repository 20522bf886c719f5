"""The XLA threshold: set once, before a backend, and only where the user has not spoken. Each in its own process."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

OLD_JAXLIB = tuple(int(part) for part in version("jaxlib").split(".")[:2]) < (0, 12)
THRESHOLD = "xla_cpu_small_while_loop_byte_threshold"


def flags_after(code, **environment):
    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "SCIAD_XLA_FLAGS")} | environment
    program = f"import os\n{code}\nprint('FLAGS', os.environ.get('XLA_FLAGS', ''))"
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split("FLAGS", 1)[1].strip()


@pytest.mark.skipif(not OLD_JAXLIB, reason="jaxlib 0.12 compiles loops as one kernel by itself")
def test_import_raises_the_threshold_and_keeps_the_users_flags():
    assert flags_after("import sciad") == f"--xla_backend_extra_options={THRESHOLD}=1000000000"
    flags = flags_after("import sciad.ode", XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert flags == f"--xla_cpu_enable_fast_math=false --xla_backend_extra_options={THRESHOLD}=1000000000"


@pytest.mark.skipif(OLD_JAXLIB, reason="older versions need the threshold")
def test_import_sets_nothing_on_new_versions():
    assert flags_after("import sciad") == ""


def test_switched_off():
    assert flags_after("import sciad", SCIAD_XLA_FLAGS="0") == ""


def test_the_users_own_backend_options_stay():
    own = "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling"
    assert flags_after("import sciad", XLA_FLAGS=own) == own


def test_too_late_after_a_backend_started():
    assert flags_after("import jax; jax.numpy.ones(1).block_until_ready(); import sciad") == ""
