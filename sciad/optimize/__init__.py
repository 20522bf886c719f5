"""Minimisation within bounds: least squares, and the Gauss-Newton engine below it."""

from sciad.optimize._least_squares import least_squares
from sciad.optimize._gauss_newton import gauss_newton
from sciad.optimize._levenberg_marquardt import LevenbergMarquardt
from sciad.optimize._solution import OptimizeSolution

__all__ = ["least_squares", "gauss_newton", "LevenbergMarquardt", "OptimizeSolution"]
