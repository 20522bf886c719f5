"""Native CVODE as a contender: `cvode/*.c` compiled with gcc and called through ctypes.

One call is one whole solve in C (create, integrate, free); what Python adds is about two microseconds.
"""

import ctypes
import hashlib
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks._harness import RESULTS
from benchmarks.problems import Problem

SOURCES = Path(__file__).parent / "cvode"
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
LIBRARIES = ("cvode", "nvecserial", "sunmatrixdense", "sunmatrixband", "sunlinsoldense", "sunlinsolband")
KLU = ("sunmatrixsparse", "sunlinsolklu")
SKIPPED = "  skipped: native CVODE; apt-get install libsundials-dev gcc"


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library; without gcc or SUNDIALS say how to install them and return None."""
    path = build() if shutil.which("gcc") else None
    if path is None:
        print(SKIPPED)
        return None
    lib = ctypes.CDLL(str(path))
    text, number, vector = ctypes.c_char_p, ctypes.c_double, np.ctypeslib.ndpointer(float, flags="C")
    counts = np.ctypeslib.ndpointer(ctypes.c_long, flags="C")
    lib.cvode_solve.argtypes = [text, text, ctypes.c_long, vector, number, number, number, vector, counts]
    return lib


def build(folder: Path = RESULTS / "build") -> Path | None:
    """Compile, unless that is done already: with KLU if it can be, else without; None if it cannot be done at all."""
    sources = sorted(SOURCES.glob("*.[ch]"))
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + repr(FLAGS).encode()).hexdigest()[:16]
    path = folder / f"cvode-{stamp}.so"
    folder.mkdir(parents=True, exist_ok=True)
    with_klu = ["-DWITH_KLU", *(f"-lsundials_{name}" for name in KLU), "-lklu"]
    for extra in with_klu, []:
        if path.is_file():
            break
        includes = ["-I/usr/include/suitesparse"] if extra else []
        c_files = [str(source) for source in sources if source.suffix == ".c"]
        links = [f"-lsundials_{name}" for name in LIBRARIES]
        command = ["gcc", *FLAGS, *includes, *c_files, "-o", str(path), *extra[:1], *links, *extra[1:], "-lm"]
        subprocess.run(command, capture_output=True, check=False)
    return path if path.is_file() else None


def solve(problem: Problem, rtol: float, solver: str) -> tuple[np.ndarray, dict[str, int]]:
    """Return the end state (NaN where CVODE fails) and what was counted."""
    lib, y, counts = library(), problem.y0.copy(), np.zeros(4, ctypes.c_long)
    if lib is None or problem.native is None:
        raise ValueError(f"{problem.name}: there is no native solver for it")
    p, atol = np.ascontiguousarray(problem.p, float).reshape(-1), rtol * problem.atol_factor
    name = problem.native.encode()
    flag = lib.cvode_solve(name, solver.encode(), len(y), p, rtol, atol, problem.t_end, y, counts)
    if flag != 0:
        y[:] = np.nan
    return y, dict(zip(("steps", "f", "Jacobians", "factorisations"), counts.tolist(), strict=True))
