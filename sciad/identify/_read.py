"""Measurements from a CSV file, or from columns in memory, as a `Table` of float64.

The dialect is settled from the whole file by the rules under `read_csv`; a file that fits two readings is refused, not
guessed. Python's `csv` splits the cells, line by line, because a message must name the line an editor shows.
"""

import csv
import difflib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sciad.core._checks import value_error

_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_MISSING = {"", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", ".", "-"}
# A remark starts with '#', but '#N/A' or '#DIV/0!' in the first cell is what a spreadsheet writes for a number.
_REMARK = re.compile(r"\s*#(?!N/A|DIV/0!|VALUE!|REF!|NAME\?|NUM!|NULL!)")
# Numbers by decimal mark: plain, then with thousands separators; typesetters and spreadsheets write '−' for '-'.
_NUMBER = {
    ".": re.compile(
        r"[+−-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+−-]?[0-9]+)?|[+−-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?"
    ),
    ",": re.compile(  # not '1,', which is a cell and a separator
        r"[+−-]?([0-9]+(,[0-9]+)?|,[0-9]+)([eE][+−-]?[0-9]+)?|[+−-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]+)?"
    ),
}


def read_csv(path: str | os.PathLike[str], *, separator: str | None = None, decimal: str | None = None) -> "Table":
    """Read a table of measurements whose first line names the columns.

    Parameters
    ----------
    path
        A text file in UTF-8 (with or without a byte order mark) or UTF-16.
    separator
        ``","``, ``";"`` or a tab. Left out, it is the one of them that splits the header and gives every line as many
        cells as the header; if several do, the one that leaves the fewest cells of text, and a tie is refused.
        Excel's first line ``sep=;`` is honoured.
    decimal
        ``"."`` or ``","``. Left out, it is the mark on which all columns of numbers agree. A cell that is a number
        with one of the marks only is evidence (``0.5``, ``1,5``, ``1.234,5``); evidence for both is refused. Without
        evidence the point holds in a file separated by commas; elsewhere a cell such as ``1.234``, which may be a
        thousand, is refused. A cell with one thousands separator and no decimal mark is accepted only if another
        cell of its column proves that the column has thousands separators, or if `decimal` is given.

    Returns
    -------
    Table
        A column whose cells are all numbers or missing (blank, ``NA``, ``N/A``, ``NaN``, ``null``, ``None``, ``.`` or
        ``-``) is float64 with NaN for missing; any other column keeps its text. Blank lines, lines of separators
        only, lines that start with ``#``, and separators at the end of a line are passed over.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        In one line that names file, line and column, for whatever else cannot be read with certainty.
    """
    path = Path(path)
    for option, value, allowed in (("separator", separator, _SEPARATORS), ("decimal", decimal, _NUMBER)):
        if value is not None and value not in allowed:
            raise value_error(option, repr(value), " or ".join(map(repr, allowed)), "leave it out to have it found")
    lines = _lines(_text(path))
    if lines and (directive := re.fullmatch(r"sep=([\t;,])", lines[0][1].strip(' "'))):
        separator, lines = separator or directive[1], lines[1:]
    if not lines:
        raise ValueError(f"{path.name}: the file is empty; expected a header line with the names of the columns")
    separator, (header, *rows) = _split(lines, separator, path.name)
    _check_header(header, f"{path.name}, line {lines[0][0]}")
    if not rows:
        raise ValueError(f"{path.name}: no line of data follows the header in line {lines[0][0]}")
    cells = {name: np.array(column, object) for name, column in zip(header, zip(*rows, strict=True), strict=True)}
    table = Table(cells, np.array([number for number, _ in lines[1:]]), path.name)
    _check_not_spaced(table)
    found = decimal or _find_decimal(table, separator)
    columns = {name: _convert(table, name, found, certain=decimal is not None) for name in header}
    return Table(columns, table.lines, path.name, decimal=found)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, and the place of each row for messages.

    Attributes
    ----------
    columns
        Name to array: float64 with NaN for missing, or text (dtype object). The arrays are read-only.
    lines
        The line of each row in its file, counted from 1; without a file, the number of the row, counted from 1.
    source
        The name of the file, for messages.
    unit
        What `lines` counts: ``"line"`` or ``"row"``.
    decimal
        The decimal mark of the file.

    Examples
    --------
    >>> table = Table.from_columns({"t": [0, 1, 2], "y": [1.0, None, 0.25]})
    >>> table.names, len(table), table.numbers("y").tolist()
    (('t', 'y'), 3, [1.0, nan, 0.25])
    """

    columns: dict[str, np.ndarray]
    lines: np.ndarray
    source: str
    unit: str = "line"
    decimal: str = "."

    def __post_init__(self):
        for array in (self.lines, *self.columns.values()):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in their order."""
        return tuple(self.columns)

    def place(self, row: int, column: str | None = None) -> str:
        """Return where row `row` (counted from 0) stands, as messages write it: ``data.csv, line 7, column 'hare'``."""
        return f"{self.source}, {self.unit} {self.lines[row]}" + ("" if column is None else f", column {column!r}")

    def column(self, name: str) -> np.ndarray:
        """Return a column of numbers or of text; raise `ValueError` with the names there are if it is missing."""
        if name in self.columns:
            return self.columns[name]
        shown = ", ".join(repr(known) for known in self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        close = _closest(name, self.names)
        raise ValueError(
            f"{self.source}: no column {name!r}; it has {shown}" + (f"; did you mean {close!r}?" if close else "")
        )

    def numbers(self, name: str) -> np.ndarray:
        """Return a column as float64, NaN where a cell is missing.

        Raises
        ------
        ValueError
            If there is no such column, or a cell of it is neither a finite number nor missing; the message names
            file, line, column and cell.
        """
        column = self.column(name)
        if column.dtype == object:
            bad = [row for row, cell in enumerate(column) if _value(cell, self.decimal) is None]
        else:
            bad = np.flatnonzero(np.isinf(column))
        if len(bad):
            mend = "leave the cell blank if it is missing"
            raise value_error(self.place(bad[0], name), _shown(str(column[bad[0]])), "a number", mend)
        return column

    @classmethod
    def from_columns(cls, columns: Any, source: str = "data") -> "Table":
        """Build a table from a mapping of names to columns: a dict, a DataFrame of pandas or polars, a record array.

        Numbers of any width become float64; in a column of objects or text, None and the marks that `read_csv` knows
        are missing. Raises `ValueError` if columns differ in length, have two axes, or share a name.
        """
        if isinstance(columns, Table):
            return columns
        found: dict[str, np.ndarray] = {}
        for key in _names(columns):
            array = _as_column(columns[key])
            if array.ndim != 1 or str(key) in found:
                got = f"an array of shape {array.shape}" if array.ndim != 1 else "the same name twice"
                raise value_error(f"{source}, column {str(key)!r}", got, "one column with one axis")
            found[str(key)] = array
        lengths = {name: len(array) for name, array in found.items()}
        if len(set(lengths.values())) != 1:
            raise value_error(source, f"columns of lengths {lengths}", "at least one column, and all equally long")
        raw = cls(found, np.arange(1, 1 + next(iter(lengths.values()))), source, unit="row")
        done = {k: _convert(raw, k, ".", certain=False) if v.dtype == object else v for k, v in found.items()}
        return cls(done, raw.lines, source, unit="row")


# --- from bytes to cells ----------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: this is a folder, expected a CSV file") from None
    except OSError as error:
        raise ValueError(f"{path}: the file cannot be read ({error.strerror})") from None
    if data.startswith(b"PK\x03\x04"):
        raise ValueError(f"{path.name}: this is a workbook or a zip archive, expected text; export the sheet as CSV")
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        place = f"{path.name}, line {data[: error.start].count(10) + 1}"
        got = f"the byte 0x{data[error.start]:02x}, which is not {encoding.removesuffix('-sig').upper()}"
        raise value_error(place, got, "text", "save the file as CSV in UTF-8") from None
    if odd := re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        place = f"{path.name}, line {text[: odd.start()].count(chr(10)) + 1}"
        got = "a carriage return alone" if odd[0] == "\r" else f"the control character {odd[0]!r}"
        raise value_error(place, got, "lines of text", "save the file as CSV in UTF-8")
    return text


def _lines(text: str) -> list[tuple[int, str]]:
    """Return (line number, line) without remarks and lines that hold no cell."""
    numbered = enumerate(text.split("\n"), 1)
    return [(number, line) for number, line in numbered if line.strip(' \t;,"') and not _REMARK.match(line)]


def _split(lines: Sequence[tuple[int, str]], separator: str | None, source: str) -> tuple[str, list[list[str]]]:
    """Settle the separator and split every line into as many cells as the header has."""
    text = [line for _, line in lines]
    readings = {mark: _rows(text, mark) for mark in ([separator] if separator else _SEPARATORS) if mark in text[0]}
    readings = {mark: rows for mark, rows in readings.items() if len(rows[0]) > 1} or readings
    if not readings:  # one column: a comma in it may be a decimal mark, a tab or a semicolon cannot be one
        mark = separator or next((mark for mark in "\t;" if any(mark in line for line in text)), ";")
        readings = {mark: _rows(text, mark)}
    misfits = {
        m: [i for i, row in enumerate(rows) if len(row) != len(rows[0]) or not row] for m, rows in readings.items()
    }
    fitting = [mark for mark in readings if not misfits[mark]]
    if not fitting:
        mark = min(misfits, key=lambda mark: len(misfits[mark]))
        raise _misfit(readings[mark], misfits[mark][0], mark, f"{source}, line {lines[misfits[mark][0]][0]}")
    texts = {mark: sum(not _reads(cell) for row in readings[mark][1:] for cell in row) for mark in fitting}
    best = [mark for mark in fitting if texts[mark] == min(texts.values())]
    if len(best) > 1:
        both = " and by ".join(_SEPARATORS[mark] for mark in best)
        raise ValueError(
            f"{source}: every line splits evenly by {both}; pass separator= to read_csv to say which it is"
        )
    return best[0], readings[best[0]]


def _rows(text: Sequence[str], mark: str) -> list[list[str]]:
    header, *rows = (_cells(line, mark) for line in text)
    while header and not header[-1]:
        header.pop()
    width = len(header)
    return [header] + [row[:width] if not any(row[width:]) else row for row in rows]


def _cells(line: str, mark: str) -> list[str]:
    """Return the cells of a line, or an empty list if its quotes do not stand around whole cells."""
    if '"' in line:
        line = re.sub(rf'" +(?={mark}|$)', '"', line)  # csv forgives spaces before a quoted cell, not after it
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=mark, skipinitialspace=True, strict=True))]
    except csv.Error:
        return []


def _misfit(rows: list[list[str]], index: int, mark: str, place: str) -> ValueError:
    if not rows[index]:
        return value_error(place, "a stray quote", "quotes around whole cells", 'write "" for a quote inside a cell')
    got = f"{len(rows[index])} cell{'s' * (len(rows[index]) != 1)} separated by {_SEPARATORS[mark]}"
    mend = "if the comma is the decimal mark, separate the columns by semicolons" if mark == "," else ""
    return value_error(place, got, f"{len(rows[0])} as in the header", mend)


def _check_header(header: list[str], place: str) -> None:
    if all(map(_reads, header)) and not all(map(_is_missing, header)):
        mend = "add a header line (a line that starts with '#' is a remark)"
        raise value_error(place, "a row of numbers", "the names of the columns", mend)
    for index, name in enumerate(header):
        if name in header[:index]:
            got = f"the name {name!r} for columns {header.index(name) + 1} and {index + 1}"
            raise value_error(place, got, "a different name for each column")


def _check_not_spaced(table: Table) -> None:
    """Refuse cells separated by spaces, which would otherwise pass as one column of text."""
    for row, cell in enumerate(next(iter(table.columns.values())) if len(table.columns) == 1 else ()):
        if len(cell.split()) > 1 and all(map(_reads, cell.split())):
            raise value_error(table.place(row), "cells separated by spaces", "commas, semicolons or tabs")


# --- from cells to numbers --------------------------------------------------------------------------------------------


def _find_decimal(table: Table, separator: str) -> str:
    """Return the decimal mark on which the columns of numbers agree."""
    numeric = [name for name, column in table.columns.items() if all(map(_reads, column))]
    evidence, unclear = _evidence(table, numeric)
    if len(evidence) == 2:
        places = (evidence["."], evidence[","])
        point, comma = (f"{table.place(row, name)}: {_shown(table.columns[name][row])}" for row, name in places)
        both = f"a decimal point in {point}, and a decimal comma in {comma}"
        raise value_error(
            table.source, both, "one decimal mark throughout", "mend the cells, or pass decimal= to read_csv"
        )
    if not evidence:  # columns with a slip such as 'n.d.' among their numbers; those of labels and dates disagree
        evidence, _ = _evidence(table, [name for name in table.names if name not in numeric])
    if unclear and len(evidence) != 1 and separator != ",":
        raise _two_readings(table, *unclear)
    return next(iter(evidence)) if len(evidence) == 1 else "."


_Place = tuple[int, str]  # row, column


def _evidence(table: Table, names: Sequence[str]) -> tuple[dict[str, _Place], _Place | None]:
    """Return the first number with one decimal mark only, for each mark, and the first that both marks can read."""
    evidence: dict[str, _Place] = {}
    unclear: _Place | None = None
    for name in names:
        for row, cell in enumerate(table.columns[name]):
            marks = [mark for mark, number in _NUMBER.items() if number.fullmatch(cell)]
            if len(marks) == 1:
                evidence.setdefault(marks[0], (row, name))
            elif marks and ("." in cell or "," in cell):
                unclear = unclear or (row, name)
    return evidence, unclear


def _convert(table: Table, name: str, decimal: str, certain: bool) -> np.ndarray:
    """Return a column as float64 if every cell is a number or missing, else as the text it is."""
    column, group = table.columns[name], "," if decimal == "." else "."
    values = [_value(cell, decimal) for cell in column]
    if None in values:
        return column
    grouped = [row for row, cell in enumerate(column) if group in cell and not _is_missing(cell)]
    lone = [row for row in grouped if column[row].count(group) == 1 and decimal not in column[row]]
    if lone and len(lone) == len(grouped) and not certain:
        raise _two_readings(table, lone[0], name)
    return np.array(values, np.float64)


def _value(cell: str, decimal: str) -> float | None:
    """Return the number in a cell, NaN if it is missing, None if it is neither (or too large for float64)."""
    if _is_missing(cell):
        return math.nan
    if not _NUMBER[decimal].fullmatch(cell):
        return None
    value = float(cell.replace("−", "-").replace("," if decimal == "." else ".", "").replace(decimal, "."))
    return value if math.isfinite(value) else None


def _is_missing(cell: str) -> bool:
    return cell.casefold() in _MISSING


def _reads(cell: str) -> bool:
    return _is_missing(cell) or any(number.fullmatch(cell) for number in _NUMBER.values())


def _two_readings(table: Table, row: int, name: str) -> ValueError:
    cell = table.columns[name][row]
    mark = "," if "," in cell else "."
    expected = f"a number with one reading, but this may be {cell.replace(mark, '.')} or {cell.replace(mark, '')}"
    mend = "leave thousands separators out, or pass decimal= to read_csv"
    return value_error(table.place(row, name), _shown(cell), expected, mend)


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def _closest(name: str, known: Sequence[str]) -> str | None:
    """Return the likeliest intended name: the same without its unit or case, else the nearest spelling."""
    bare = [other for other in known if re.split(r"[\[(]", other)[0].strip().casefold() == name.strip().casefold()]
    return next(iter(bare + difflib.get_close_matches(name, known, 1)), None)


# --- from columns in memory to arrays ---------------------------------------------------------------------------------


def _names(columns: Any) -> list[Any]:
    if hasattr(columns, "keys"):  # a dict, pandas
        return list(columns.keys())
    for attribute in ("columns", "column_names"):  # polars, pyarrow
        if hasattr(columns, attribute):
            return list(getattr(columns, attribute))
    if names := getattr(getattr(columns, "dtype", None), "names", None):  # a record array
        return list(names)
    raise value_error(
        "data", f"an object of type {type(columns).__name__}", "a mapping of names to columns, or a data frame"
    )


def _as_column(values: Any) -> np.ndarray:
    """Return a copy as float64, or as an object array of text where the values are not all numbers."""
    if isinstance(values, np.ma.MaskedArray):  # np.asarray would bring the masked values back
        values = np.ma.filled(values.astype(object), np.nan)
    array = np.asarray(values)
    if array.dtype.kind in "biuf" or array.ndim != 1:
        return array.astype(np.float64) if array.dtype.kind in "biuf" else array
    text = [repr(float(cell)) if isinstance(cell, float | np.floating) else str(cell).strip() for cell in array]
    return np.array(text, object)
