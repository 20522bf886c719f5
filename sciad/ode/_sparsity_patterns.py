"""Patterns of dependence as sparse matrices of bool, and what is known of an array of a traced program.

A pattern has a row for every element of the array, in C order, and a column for every element of y.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse

Pattern = Any  # scipy.sparse.csr_array of bool, for which SciPy ships no types; None where independent of y

_MOST_ENTRIES = 2**25


class TooManyEntries(Exception):
    """A pattern grew too large to be worth storing."""


class Value:
    """One array of the program: its shape, its pattern, and its value where that is known and wanted."""

    def __init__(self, shape: Any, dtype: Any, pattern: Pattern = None, known: Callable[[], Any] | None = None):
        self.shape, self.dtype, self.pattern = tuple(shape), dtype, pattern
        self.size = math.prod(self.shape)
        self._known, self._value = known, None

    def value(self) -> Any:
        """Return the array itself, computed when first asked for, or None where it depends on unknown numbers."""
        if self._value is None and self._known is not None:
            self._value = self._known()
        return self._value

    def is_known(self) -> bool:
        return self._known is not None

    def with_known(self, x: Any) -> "Value":
        return Value(self.shape, self.dtype, None, lambda: x)

    def unknown(self) -> "Value":
        return Value(self.shape, self.dtype, self.pattern)

    def at(self, i: int) -> "Value":
        """Return the i-th slice along the first axis."""
        size = math.prod(self.shape[1:])
        pattern = None if self.pattern is None else rows_of(self.pattern, np.arange(i * size, (i + 1) * size))
        known = (lambda: self.value()[i]) if self.is_known() else None
        return Value(self.shape[1:], self.dtype, pattern, known)


def identity(size: int) -> Pattern:
    indices = np.arange(size + 1, dtype=np.int32)
    return _csr(indices, indices[:-1], size)


def join(patterns: Iterable[Pattern]) -> Pattern:
    """Return the entries that are in any of several patterns of one shape."""
    joined: Pattern = None
    for pattern in patterns:
        if joined is None or pattern is None:
            joined = pattern if joined is None else joined
        elif not _same(joined, pattern):
            joined = joined + pattern
            check_size(joined.nnz)
    return joined


def stacked(values: list[Value], num_columns: int) -> Pattern:
    """Return the patterns of several arrays below each other, with empty rows for what is independent."""
    counts = [
        np.zeros(value.size, np.int32) if value.pattern is None else np.diff(value.pattern.indptr) for value in values
    ]
    indices = [value.pattern.indices for value in values if value.pattern is not None]
    indptr = np.cumsum(np.concatenate([np.zeros(1, np.int32), *counts]))
    return _csr(indptr, np.concatenate([np.zeros(0, np.int32), *indices]), num_columns)


def rows_of(pattern: Pattern, rows: np.ndarray) -> Pattern:
    """Return some rows of a pattern; a row number of -1 is an empty row."""
    if pattern is None or not pattern.shape[0]:
        return None
    if rows.size == pattern.shape[0] and np.array_equal(rows, np.arange(rows.size)):
        return pattern
    found = rows >= 0
    counts = np.where(found, np.diff(pattern.indptr)[rows], 0)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    check_size(indptr[-1])
    offsets = np.repeat(pattern.indptr[rows] - indptr[:-1], counts)
    return _csr(indptr, pattern.indices[offsets + np.arange(indptr[-1])], pattern.shape[1])


def union(which: Pattern, pattern: Pattern) -> Pattern:
    """Return rows that are each the union of those rows of a pattern that `which` marks in its own."""
    if which is None or pattern is None:
        return None
    check_size(np.diff(pattern.indptr)[which.indices].sum())
    product = which @ pattern
    product.sort_indices()
    return product


def dense_rows(num_rows: int, columns: np.ndarray, num_columns: int) -> Pattern:
    check_size(num_rows * columns.size)
    return _csr(np.arange(num_rows + 1) * columns.size, np.tile(columns, num_rows), num_columns)


def _csr(indptr: np.ndarray, indices: np.ndarray, num_columns: int) -> Pattern:
    """Build from rows with sorted columns, each once."""
    indptr, indices = indptr.astype(np.int32), indices.astype(np.int32)
    built = scipy.sparse.csr_array(
        (np.ones(indices.size, bool), indices, indptr), shape=(indptr.size - 1, num_columns), copy=False
    )
    built.has_canonical_format = True
    return built


def groups(rows: np.ndarray, num_rows: int) -> Pattern:
    """Return the marks for `union` where element j goes into row rows[j]."""
    rows = np.ravel(rows)
    return scipy.sparse.csr_array((np.ones(rows.size, bool), (rows, np.arange(rows.size))), shape=(num_rows, rows.size))


def _same(a: Pattern, b: Pattern) -> bool:
    return a is b or (a.nnz == b.nnz and np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices))


def check_size(num_entries: int) -> None:
    if num_entries > _MOST_ENTRIES:
        raise TooManyEntries
