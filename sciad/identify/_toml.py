"""A problem from a TOML file: the same as a script, for those who do not write one.

[model]                                   # a Python file's right-hand side ...
file = "model.py"
rhs = "predator_prey"
states = ["hare", "lynx"]
initial = { hare = "hare0", lynx = "lynx0" }

[model.equations]                         # ... or equations as text
hare = "alpha*hare - beta*hare*lynx"

[parameters]
alpha = { start = 0.5, lower = 1e-4, upper = 10, scale = "log" }

[[experiments]]
data = "lynx_hare.csv"
time = "year"
observe = { hare = "hare", lynx = "lynx" }
noise = { kind = "lognormal", sigma = "estimate" }

[fit]
starts = 16
"""

import re
import runpy
import tomllib
import traceback
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from sciad import ode
from sciad.core import did_you_mean, value_error
from sciad.identify._experiment import Experiment
from sciad.identify._model import Model
from sciad.identify._noise import LogNormal, Noise, Normal
from sciad.identify._parameter import Parameter
from sciad.identify._problem import Problem
from sciad.identify._read import read_csv

_KEYS = {
    "": ("model", "parameters", "experiments", "solver", "fit"),
    "model": ("file", "rhs", "states", "initial", "equations", "definitions"),
    "parameters.*": ("start", "lower", "upper", "scale", "fixed"),
    "experiments": ("data", "separator", "decimal", "time", "observe", "noise", "t0", "given", "name"),
    "noise": ("kind", "sigma"),
    "solver": ("method", "rtol", "atol", "max_steps"),
    "fit": ("starts", "seed"),
}
_METHODS = {
    "auto": ode.Auto,
    "tsit5": ode.Tsit5,
    "dop853": ode.DOP853,
    "rodas5p": ode.Rodas5P,
    "bdf": ode.BDF,
}
_NOISES: dict[str, type[Noise]] = {"normal": Normal, "lognormal": LogNormal}


def load_problem(path: str | PathLike[str]) -> Problem:
    """Read a problem from a TOML file; paths in it are relative to it.

    Raises
    ------
    ValueError, FileNotFoundError
        In one line that names the file and the line, key, parameter or column.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise ValueError(f"{path.name}: not a TOML file: {error}") from None
    try:
        return _Reader(path, text).problem(document)
    except FileNotFoundError:
        raise
    except ValueError as error:
        told = str(error)
        raise ValueError(told if told.startswith(f"{path.name}") else f"{path.name}: {told}") from error
    except TypeError as error:
        raise ValueError(f"{path.name}: {error}") from error


class _Reader:
    """Turns the tables of one file into the objects that a script would make."""

    def __init__(self, path: Path, text: str):
        self.path, self.lines = path, text.splitlines()

    def problem(self, document: Mapping[str, Any]) -> Problem:
        self.check_keys("", document, required=("model", "parameters", "experiments"))
        experiments = document["experiments"]
        if not isinstance(experiments, list):
            raise ValueError(
                f"{self.at('experiments')}: write [[experiments]] with two brackets, one for each experiment"
            )
        options = {key: self.table(key, document.get(key, {})) for key in ("solver", "fit")}
        for key, table in options.items():
            self.check_keys(key, table)
        parameters = self.table("parameters", document["parameters"])
        for name, table in parameters.items():
            self.check_keys("parameters.*", self.table(f"parameters.{name}", table), ("start",), f"parameters.{name}")
        return Problem(
            self.model(self.table("model", document["model"])),
            [Parameter(name, **table) for name, table in parameters.items()],
            [self.experiment(self.table("experiments", table)) for table in experiments],
            **self.solver(options["solver"]),
            defaults=options["fit"],
        )

    def solver(self, table: Mapping[str, Any]) -> dict[str, Any]:
        options = dict(table)
        if "method" in options:
            name = options["method"]
            if name not in _METHODS:
                raise ValueError(
                    f"{self.at('method', name)}: got {name!r}, expected one of {', '.join(map(repr, _METHODS))}"
                )
            options["method"] = _METHODS[name]()
        return options

    def model(self, table: Mapping[str, Any]) -> Model:
        self.check_keys("model", table, required=("initial",))
        if ("equations" in table) == ("file" in table) or ("equations" in table and "rhs" in table):
            raise ValueError(f"{self.at('model')}: give either [model.equations] or file and rhs")
        if "equations" in table:
            equations = self.table("model.equations", table["equations"])
            return Model(equations, table.get("states"), initial=table["initial"], definitions=table.get("definitions"))
        if "definitions" in table:
            raise ValueError(f"{self.at('definitions')}: definitions are for equations as text; put them into the file")
        self.check_keys("model", table, required=("rhs", "states"))
        rhs = self.function(self.text(table, "file"), self.text(table, "rhs"))
        return Model(rhs, table["states"], initial=table["initial"])

    def function(self, file: str, name: str) -> Callable[..., Any]:
        source = self.path.parent / file
        if not source.is_file():
            raise FileNotFoundError(f"{self.path.name}: model file {file!r}: no such file")
        try:
            namespace = runpy.run_path(str(source))
        except (Exception, SystemExit) as error:
            frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(source)]
            line = getattr(error, "lineno", None) or (frames[-1] if frames else "?")
            first = str(error).splitlines()[0] if str(error) else ""
            raise ValueError(f"{source.name}, line {line}: raised {type(error).__name__}: {first}") from error
        if not callable(namespace.get(name)):
            functions = [k for k, v in namespace.items() if callable(v) and not k.startswith("_")]
            raise value_error(
                f"{source.name}: rhs", repr(name), f"one of its functions: {', '.join(functions) or 'none'}"
            )
        return namespace[name]

    def experiment(self, table: Mapping[str, Any]) -> Experiment:
        self.check_keys("experiments", table, required=("data", "time", "observe"))
        options = {key: table[key] for key in ("time", "observe", "t0", "given", "name") if key in table}
        dialect = {key: table[key] for key in ("separator", "decimal") if key in table}
        data = read_csv(self.path.parent / self.text(table, "data"), **dialect)
        return Experiment(data, noise=self.noise(table.get("noise")), **options)

    def noise(self, table: Any) -> Noise | dict[str, Noise] | None:
        if table is None:
            return None
        table = self.table("noise", table)
        if table and all(isinstance(value, Mapping) for value in table.values()):
            return {observable: self.one_noise(value) for observable, value in table.items()}
        return self.one_noise(table)

    def one_noise(self, table: Mapping[str, Any]) -> Noise:
        self.check_keys("noise", table, required=("kind",))
        kind = table["kind"]
        if not isinstance(kind, str) or kind not in _NOISES:
            raise ValueError(f"{self.at('kind', kind)}: got {kind!r}, expected one of {', '.join(map(repr, _NOISES))}")
        return _NOISES[kind](table.get("sigma", "estimate"))

    def table(self, name: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            place = self.at(name.split(".")[-1], value)
            raise ValueError(f"{place}: got {value!r} for {name}, expected a table of keys")
        return value

    def text(self, table: Mapping[str, Any], key: str) -> str:
        if not isinstance(table[key], str):
            raise ValueError(f"{self.at(key, table[key])}: got {table[key]!r} for {key}, expected text in quotes")
        return table[key]

    def check_keys(
        self, section: str, table: Mapping[str, Any], required: tuple[str, ...] = (), shown: str | None = None
    ) -> None:
        known = _KEYS[section]
        for key in table:
            if key not in known:
                listed = ", ".join(known) + did_you_mean(key, known)
                raise ValueError(f"{self.at(key, table[key])}: unknown key {key!r}; known are {listed}")
        for key in required:
            if key not in table:
                place = f" in [{shown or section}]" if section else ""
                raise ValueError(f"{self.path.name}: missing key {key!r}{place}")

    def at(self, key: str, value: Any = None) -> str:
        """Return file and line where a key stands, for messages; TOML readers keep no positions.

        Of several lines with the key it is the first that gives it this value; if none does, no line is named.
        """
        word = rf"(?<![\w-]){re.escape(key)}[\"']?\s*"
        named, given = (
            re.compile(word + r"[\]=.]"),
            re.compile(rf"{word}=\s*[\"']?{re.escape(str(value))}", re.IGNORECASE),
        )
        found = [n for n, line in enumerate(self.lines, start=1) if named.search(line.split("#")[0])]
        exact = [n for n in found if given.search(self.lines[n - 1])]
        line = exact[:1] or (found if len(found) == 1 or value is None else [])[:1]
        return ", line ".join([self.path.name, *map(str, line)])
