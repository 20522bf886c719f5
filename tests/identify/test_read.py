"""CSV dialects: the same numbers from every way to write them, or one line that names the place."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciad.identify._read import Table, read_csv


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("csv")


@pytest.fixture
def read(folder):
    def read(content, **options):
        path = folder / "data.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_csv(path, **options)

    return read


def refusal(call, *args, **kwargs):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared by the caller
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


PLAIN = "year,hare,lynx\n1900,30.5,4\n1901,47.25,6.125\n1902,,9.8\n"

MISSING = ("NA", "N/A", "NaN", "nan", "null", "None", ".", "-", "#N/A", ' "" ')

SAME = {
    "comma": PLAIN,
    "semicolon": PLAIN.replace(",", ";"),
    "tab": PLAIN.replace(",", "\t"),
    "semicolon, decimal comma": PLAIN.replace(",", ";").replace(".", ","),
    "tab, decimal comma": PLAIN.replace(",", "\t").replace(".", ","),
    "byte order mark": "\ufeff" + PLAIN,
    "UTF-16": PLAIN.encode("utf-16"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "no newline at the end": PLAIN.rstrip("\n"),
    "spaces around": PLAIN.replace(",", " , "),
    "spaces around, tabs too": PLAIN.replace(",", " ,\t"),
    "quoted": re.sub(r"([^,\n]+)", r'"\1"', PLAIN),
    "quoted, spaces around": re.sub(r"([^,\n]+)", r' "\1" ', PLAIN),
    "quoted decimal commas between commas": 'year,hare,lynx\n1900,"30,5",4\n1901,"47,25","6,125"\n1902,,"9,8"\n',
    "separators at the end": PLAIN.replace("\n", ",\n"),
    "separators at the end of the data": PLAIN.replace("\n", ",\n").replace("lynx,", "lynx"),
    "separators at the end of the header": PLAIN.replace("lynx\n", "lynx,,\n"),
    "sep= of a spreadsheet": "sep=;\n" + PLAIN.replace(",", ";"),
    "plus signs and exponents": "year,hare,lynx\n+1.9e3,3.05E+1,4.\n1901,4725e-2,+6.125\n1902,,98E-1\n",
    "thousands": 'year,hare,lynx\n"1,900",30.5,4\n"1,901.0",47.25,6.125\n1902,,9.8\n',
    "thousands, decimal comma": "year;hare;lynx\n1.900,0;30,5;4\n1.901;47,25;6,125\n1902;;9,8\n",
    "remarks and blank lines": "# a\n\nyear,hare,lynx\n1900,30.5,4\n\n  # b\n1901,47.25,6.125\n,,\n1902,,9.8\n\n\n",
    **{f"missing as {mark!r}": PLAIN.replace(",,", f",{mark},") for mark in MISSING},
}  # fmt: skip


@pytest.mark.parametrize("content", SAME.values(), ids=SAME.keys())
def test_every_dialect_gives_the_same_numbers(read, content):
    table = read(content)
    assert table.names == ("year", "hare", "lynx")
    assert len(table) == 3
    np.testing.assert_array_equal(table.numbers("year"), [1900, 1901, 1902])
    np.testing.assert_array_equal(table.numbers("hare"), [30.5, 47.25, np.nan])
    np.testing.assert_array_equal(table.numbers("lynx"), [4, 6.125, 9.8])
    assert all(column.dtype == np.float64 for column in table.columns.values())


def test_lines_are_those_of_an_editor(read):
    table = read("# remark\n\nt,y\n0,1\n\n# remark\n1,2\n,\n2,x\n")
    assert table.lines.tolist() == [4, 7, 9]
    assert refusal(table.numbers, "y") == (
        "data.csv, line 9, column 'y': got 'x', expected a number; leave the cell blank if it is missing"
    )


def test_text_columns_stay_text_and_say_nothing_about_the_decimal_mark(read):
    table = read("strain;date;version;y\nwild type;1,5;1.2.3;0,5\nNA;2;2.5;1,5\nmutant;x;3.5;2,0\n")
    assert table.columns["strain"].tolist() == ["wild type", "NA", "mutant"]
    assert table.columns["date"].tolist() == ["1,5", "2", "x"]
    np.testing.assert_array_equal(table.numbers("y"), [0.5, 1.5, 2.0])


def test_a_slip_among_decimal_commas_is_the_cell_that_is_named(read):
    table = read("t;y\n1;1,5\n2;n.d.\n")
    assert refusal(table.numbers, "y").startswith("data.csv, line 3, column 'y': got 'n.d.'")
    assert refusal(read("t;v;w\n1;1,5;a\n2;1.5;b\n3;c;d\n").numbers, "v").startswith("data.csv, line 2, column 'v'")


def test_units_stay_in_the_name_and_are_suggested(read):
    table = read("t [s],conc (mM)\n0,1\n")
    assert table.names == ("t [s]", "conc (mM)")
    assert refusal(table.numbers, "conc") == (
        "data.csv: no column 'conc'; it has 't [s]', 'conc (mM)'; did you mean 'conc (mM)'?"
    )
    assert refusal(table.numbers, "T").endswith("did you mean 't [s]'?")


def test_a_missing_column_is_named_with_its_neighbour(read):
    assert refusal(read(PLAIN).numbers, "lynks") == (
        "data.csv: no column 'lynks'; it has 'year', 'hare', 'lynx'; did you mean 'lynx'?"
    )
    assert refusal(read(PLAIN).numbers, "qqq") == "data.csv: no column 'qqq'; it has 'year', 'hare', 'lynx'"


def test_one_column(read):
    np.testing.assert_array_equal(read("y\n0.5\n2\n").numbers("y"), [0.5, 2])
    np.testing.assert_array_equal(read("y\n0,5\n2\n").numbers("y"), [0.5, 2])
    np.testing.assert_array_equal(read("y,\n0.5,\n2,\n").numbers("y"), [0.5, 2])


def test_the_index_that_pandas_writes_is_a_column_without_a_name(read):
    assert read(",y\n0,1.5\n1,2.5\n").names == ("", "y")


def test_separator_inside_cells_is_settled_by_the_fewest_texts(read):
    np.testing.assert_array_equal(read("t, s;y, mM\n0,5;1,5\n1,0;2,5\n").numbers("t, s"), [0.5, 1.0])
    table = read('"t, s";"y, mM"\n0,5;1,5\n')
    assert table.names == ("t, s", "y, mM")


def test_options_settle_what_the_file_does_not(read):
    file = "t;y\n1;1.234\n"
    assert read(file, decimal=".").numbers("y") == [1.234]
    assert read(file, decimal=",").numbers("y") == [1234]
    assert read('t,y\n1,"1,234"\n', decimal=",").numbers("y") == [1.234]
    assert read('t,y\n1,"1,234"\n', decimal=".").numbers("y") == [1234]
    assert read("a;b,c\nx;y,z\n", separator=";").names == ("a", "b,c")
    assert read("t;y\n0,5;1.5\n", decimal=",").columns["y"].tolist() == ["1.5"]


def test_a_lone_point_between_commas_is_decimal(read):
    assert read("t,y\n1,1.234\n").numbers("y") == [1.234]


REFUSED = {
    "": "data.csv: the file is empty; expected a header line with the names of the columns",
    "\n# only a remark\n": "data.csv: the file is empty; expected a header line with the names of the columns",
    "\nt,y\n\n": "data.csv: no line of data follows the header in line 2",
    "0,1\n1,2\n": "data.csv, line 1: got a row of numbers, expected the names of the columns; "
    "add a header line (a line that starts with '#' is a remark)",
    "t,y\n0,1\n1,2,3\n": "data.csv, line 3: got 3 cells separated by commas, expected 2 as in the header; "
    "if the comma is the decimal mark, separate the columns by semicolons",
    "t,y\n0,1\n\n1\n": "data.csv, line 4: got 1 cell separated by commas, expected 2 as in the header; "
    "if the comma is the decimal mark, separate the columns by semicolons",
    "t;y\n0;1\n1;2;3\n": "data.csv, line 3: got 3 cells separated by semicolons, expected 2 as in the header",
    "y\n1;2\n": "data.csv, line 2: got 2 cells separated by semicolons, expected 1 as in the header",
    "t y\n0 1\n": "data.csv, line 2: got cells separated by spaces, expected commas, semicolons or tabs",
    "t,y,t\n0,1,2\n": "data.csv, line 1: got the name 't' for columns 1 and 3, "
    "expected a different name for each column",
    't,y\n0,1\n0,"1\n2,3\n': "data.csv, line 3: got a stray quote, expected quotes around whole cells; "
    'write "" for a quote inside a cell',
    't,y\n0,"1"2\n': "data.csv, line 2: got a stray quote, expected quotes around whole cells; "
    'write "" for a quote inside a cell',
    't,y\n0.5,1\n1,"1,234"\n': "data.csv, line 3, column 'y': got '1,234', expected a number with one reading, "
    "but this may be 1.234 or 1234; leave thousands separators out, or pass decimal= to read_csv",
    "t;y\n1;1.234\n": "data.csv, line 2, column 'y': got '1.234', expected a number with one reading, "
    "but this may be 1.234 or 1234; leave thousands separators out, or pass decimal= to read_csv",
    "t;y\n0,5;1\n1,5;1.234\n": "data.csv, line 3, column 'y': got '1.234', expected a number with one reading, "
    "but this may be 1.234 or 1234; leave thousands separators out, or pass decimal= to read_csv",
    "t;y\n0.5;1\n1;2,5\n": "data.csv: got a decimal point in data.csv, line 2, column 't': '0.5', and a decimal comma "
    "in data.csv, line 3, column 'y': '2,5', expected one decimal mark throughout; "
    "mend the cells, or pass decimal= to read_csv",
    "a;b,c\nx;y,z\n": "data.csv: every line splits evenly by semicolons and by commas; "
    "pass separator= to read_csv to say which it is",
    "t,y\r0,1\r": "data.csv, line 1: got a carriage return alone, expected lines of text; "
    "save the file as CSV in UTF-8",
    b"t,y\n0,\x00\n": "data.csv, line 2: got the control character '\\x00', expected lines of text; "
    "save the file as CSV in UTF-8",
    b"t,\xb5g\n0,1\n": "data.csv, line 1: got the byte 0xb5, which is not UTF-8, expected text; "
    "save the file as CSV in UTF-8",
    b"PK\x03\x04rest": "data.csv: this is a workbook or a zip archive, expected text; export the sheet as CSV",
}  # fmt: skip


@pytest.mark.parametrize("content", REFUSED, ids=repr)
def test_refusals(read, content):
    assert refusal(read, content) == REFUSED[content]


@pytest.mark.parametrize(
    "cell", ["n.d.", "<0.1", "1_000", "1e999", "inf", "5 mg", "12:30", "١", "0x10", "1 234", "12,34.5"]
)
def test_what_is_not_a_number_is_refused_where_numbers_are_wanted(read, cell):
    table = read(f'lynx;hare\n1.5;0.5\n2.5;"{cell}"\n')
    assert refusal(table.numbers, "hare") == (
        f"data.csv, line 3, column 'hare': got {cell!r}, expected a number; leave the cell blank if it is missing"
    )
    np.testing.assert_array_equal(table.numbers("lynx"), [1.5, 2.5])


def test_the_minus_sign_of_typesetters_is_a_minus(read):
    assert read("t,y\n0,\N{MINUS SIGN}1.5e\N{MINUS SIGN}3\n").numbers("y") == [-1.5e-3]


def test_files_that_cannot_be_read(folder):
    missing = folder / "missing.csv"
    with pytest.raises(FileNotFoundError, match=re.escape(f"{missing}: there is no such file")):
        read_csv(missing)
    assert refusal(read_csv, folder) == f"{folder}: this is a folder, expected a CSV file"


def test_unknown_options(read):
    assert refusal(read, PLAIN, separator="|") == (
        "separator: got '|', expected '\\t' or ';' or ','; leave it out to have it found"
    )
    assert refusal(read, PLAIN, decimal="'") == "decimal: got \"'\", expected '.' or ','; leave it out to have it found"


def test_long_cells_are_cut_in_messages(read):
    assert "got '" + "x" * 37 + "...'," in refusal(read("t,y\n0," + "x" * 100 + "\n").numbers, "y")


# --- columns in memory


def test_columns_of_any_kind_become_float64():
    table = Table.from_columns(
        {
            "t": range(3),
            "single": np.array([0.1, 0.2, 0.3], np.float32),
            "gaps": [1.5, None, float("nan")],
            "text": ["1.5", "NA", " 2 "],
            "masked": np.ma.array([1, 2, 3], mask=[False, True, False]),
            "label": ["a", "b", None],
        }
    )
    assert table.names == ("t", "single", "gaps", "text", "masked", "label")
    for name, expected in {
        "t": [0, 1, 2],
        "single": np.array([0.1, 0.2, 0.3], np.float32).astype(float),
        "gaps": [1.5, np.nan, np.nan],
        "text": [1.5, np.nan, 2],
        "masked": [1, np.nan, 3],
    }.items():
        assert table.numbers(name).dtype == np.float64
        np.testing.assert_array_equal(table.numbers(name), expected)
    assert refusal(table.numbers, "label") == (
        "data, row 1, column 'label': got 'a', expected a number; leave the cell blank if it is missing"
    )


def test_data_frames_and_record_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"t": [0, 1], "y": pandas.array([None, 2.5], dtype="Float64"), "n": ["a", "b"]}, index=[5, 6]
    )
    table = Table.from_columns(frame, source="frame")
    np.testing.assert_array_equal(table.numbers("y"), [np.nan, 2.5])
    assert table.columns["n"].tolist() == ["a", "b"]
    assert Table.from_columns(table) is table
    records = np.array([(0, 0.5), (1, 1.5)], dtype=[("t", int), ("y", np.float32)])
    np.testing.assert_array_equal(Table.from_columns(records).numbers("y"), [0.5, 1.5])


def test_wrong_columns():
    assert refusal(Table.from_columns, {"t": [0, 1], "y": [1]}) == (
        "data: got columns of lengths {'t': 2, 'y': 1}, expected at least one column, and all equally long"
    )
    assert refusal(Table.from_columns, {}).startswith("data: got columns of lengths {}")
    assert refusal(Table.from_columns, {"t": np.ones((2, 2))}) == (
        "data, column 't': got an array of shape (2, 2), expected one column with one axis"
    )
    assert refusal(Table.from_columns, {"t": 1.0}).startswith("data, column 't': got an array of shape ()")
    assert refusal(Table.from_columns, {1: [1.0], "1": [2.0]}).startswith("data, column '1': got the same name twice")
    assert (
        refusal(Table.from_columns, 3)
        == "data: got an object of type int, expected a mapping of names to columns, or a data frame"
    )
    infinite = Table.from_columns({"y": [1.0, math.inf]})
    assert refusal(infinite.numbers, "y").startswith("data, row 2, column 'y': got 'inf', expected a number")


def test_a_table_does_not_share_memory_and_cannot_be_written():
    mine = np.arange(3.0)
    table = Table.from_columns({"y": mine})
    mine[0] = 7
    assert table.numbers("y")[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        table.numbers("y")[0] = 1


def test_reading_imports_no_table_library(folder):
    path = folder / "import.csv"
    path.write_text(PLAIN)
    code = (
        "import sys; from sciad.identify._read import read_csv; read_csv(sys.argv[1]); print('pandas' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


# --- properties

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**6), 10**6).map(float) | st.just(math.nan)


@st.composite
def dialects(draw):
    """Return a way to write a table as bytes."""
    separator, decimal = draw(
        st.sampled_from([(",", "."), (",", ","), (";", "."), (";", ","), ("\t", "."), ("\t", ",")])
    )
    newline, encoding = draw(st.sampled_from(["\n", "\r\n"])), draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
    quoted, pad = draw(st.booleans()) or separator == decimal, draw(st.sampled_from(["", " ", "  "]))
    missing, trailing = draw(st.sampled_from(["", "NA", "nan", "."])), draw(st.booleans())
    extra = draw(st.lists(st.sampled_from(["", "# a, remark; of text", separator, "   "]), max_size=3))

    def write(names, rows):
        def cell(value):
            if isinstance(value, float):
                value = missing if math.isnan(value) else repr(value).replace(".", decimal)
            return pad + (f'"{value}"' if quoted else value) + pad

        lines = [separator.join(map(cell, row)) + separator * trailing for row in (names, *rows)]
        lines[1:1] = extra
        return newline.join([*extra, *lines, *extra]).encode(encoding)

    return write


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6), dialects())
def test_numbers_survive_every_dialect_bit_for_bit(folder, rows, write):
    path = folder / "property.csv"
    rows = [(0.5, 0.25), *(row for row in rows if not all(map(math.isnan, row)))]  # 0.5 settles the decimal mark
    path.write_bytes(write(["t [s]", "y"], rows))
    table = read_csv(path)
    for name, expected in zip(["t [s]", "y"], zip(*rows, strict=True), strict=True):
        np.testing.assert_array_equal(table.numbers(name), expected)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | st.text('0123456789.,;\t\n"# -eNAxy', max_size=40).map(str.encode)
)
def test_any_bytes_give_a_table_or_one_line(folder, content):
    path = folder / "fuzz.csv"
    path.write_bytes(content)
    table = one_line_or(read_csv, path)
    if table is None:
        return
    assert all(len(column) == len(table) > 0 for column in table.columns.values())
    for name in table.names:
        numbers = one_line_or(table.numbers, name)
        assert numbers is None or not np.isinf(numbers).any()


def one_line_or(call, argument):
    """Return the answer, or None if it is refused with a `ValueError` of one line."""
    try:
        return call(argument)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
    return None
