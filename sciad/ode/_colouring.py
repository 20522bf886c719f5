"""Colours for the columns of a sparse Jacobian: columns of one colour share no row, one derivative holds them all."""

from typing import Any

import numpy as np
import scipy.sparse

from sciad.ode._sparsity_patterns import Pattern


def colour_columns(pattern: Pattern) -> tuple[np.ndarray, int]:
    """Return a colour for every column such that no row has two entries of one colour, and the number of colours.

    Parameters
    ----------
    pattern : scipy.sparse array, (m, n)

    Returns
    -------
    colours : ndarray of int32, (n,)
    num_colours : int
        At least the largest number of entries in a row; equal to it in most stencils and in every band.

    Notes
    -----
    Greedy in three orders, of which the one with the fewest colours is kept: as numbered (optimal for a band), by
    position in the reverse Cuthill-McKee order (a band in disguise), and columns with most entries first. The cost of
    each is proportional to the number of entries. Source: Curtis, Powell and Reid, Journal of the Institute of
    Mathematics and its Applications 13 (1974) 117; Gebremedhin, Manne and Pothen, "What color is your Jacobian?",
    SIAM Review 47 (2005) 629.
    """
    rows_of_column = scipy.sparse.csc_array(pattern)
    fewest = max(int(np.diff(scipy.sparse.csr_array(pattern).indptr).max(initial=0)), 1)
    best = _greedy(rows_of_column, np.arange(pattern.shape[1]))
    for order in (_by_bandwidth, _largest_first):
        if best[1] > fewest and (columns := order(pattern)) is not None:
            best = min(best, _greedy(rows_of_column, columns), key=lambda coloured: coloured[1])
    return best


def _greedy(pattern: Any, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Give each column the first colour that none of its rows has yet; a row keeps its colours as bits of a number."""
    taken = [0] * pattern.shape[0]
    colours = np.zeros(pattern.shape[1], np.int32)
    starts, rows = pattern.indptr.tolist(), pattern.indices.tolist()
    for column in order.tolist():
        mine = rows[starts[column] : starts[column + 1]]
        forbidden = 0
        for row in mine:
            forbidden |= taken[row]
        bit = ~forbidden & (forbidden + 1)
        for row in mine:
            taken[row] |= bit
        colours[column] = bit.bit_length() - 1
    return colours, int(colours.max(initial=0)) + 1


def _by_bandwidth(pattern: Pattern) -> np.ndarray | None:
    if pattern.shape[0] != pattern.shape[1]:
        return None
    square = scipy.sparse.csr_array(pattern, dtype=np.int8)
    return scipy.sparse.csgraph.reverse_cuthill_mckee(scipy.sparse.csr_array(square + square.T), symmetric_mode=True)


def _largest_first(pattern: Pattern) -> np.ndarray:
    return np.argsort(-np.diff(scipy.sparse.csc_array(pattern).indptr), kind="stable")
