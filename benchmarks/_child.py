"""A measurement in a process of its own: started, watched, and read."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINUX = Path("/proc/self/status").is_file()


def run_child(
    module: str, *arguments: str, seconds: float = 600.0, gigabytes: float = 8.0, threshold: bool = True
) -> dict[str, Any] | None:
    """Run `python -m module arguments` from the root; return the JSON object on the last line of what it prints.

    None, with a line that says why, if it fails, takes longer than `seconds` or (on Linux) more than `gigabytes`.
    Without `threshold`, XLA keeps the one of its own that sciad raises.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        command = [sys.executable, "-m", module, *arguments]
        child = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err, env=environment(threshold))
        reason, begin = "", time.monotonic()
        while child.poll() is None and not reason:
            time.sleep(0.02)
            if time.monotonic() - begin > seconds:
                reason = f"longer than {seconds:g} s"
            elif LINUX and peak_gigabytes(child.pid) > gigabytes:
                reason = f"more than {gigabytes:g} GB"
        if reason:
            child.kill()
        child.wait()
        out.seek(0)
        err.seek(0)
        lines, errors = out.read().splitlines(), err.read().splitlines()
    if not reason and (child.returncode != 0 or not lines):
        reason = errors[-1] if errors else f"exit status {child.returncode}"
    if reason:
        print(f"  {' '.join(arguments)}: {reason}")
        return None
    return json.loads(lines[-1])


def environment(threshold: bool) -> dict[str, str]:
    """Return this process's environment, with float64 on, and with or without sciad's XLA threshold."""
    wanted = os.environ | {"JAX_ENABLE_X64": "1", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    if not threshold:
        wanted |= {"SCIAD_XLA_FLAGS": "0", "XLA_FLAGS": ""}
    return wanted


def peak_gigabytes(pid: int | str = "self") -> float:
    """Return the most memory a process has had resident; 0 where that cannot be read."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return float(line.split()[1]) / 1024**2
