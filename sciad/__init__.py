"""Differentiable scientific computing on JAX.

Write the function for one case; `sciad` turns it into its solution, its derivative, its batch and its compiled kernel.
Importing the package changes no JAX setting; on jaxlib older than 0.12 it raises one XLA threshold (`sciad.core._xla`).
"""

from importlib.metadata import PackageNotFoundError, version

from sciad.core import SolveError, Status

try:
    __version__ = version("sciad")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["SolveError", "Status", "__version__"]
