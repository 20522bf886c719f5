"""How the command sets JAX up: float64, and compiled programs in the user's cache folder."""

from pathlib import Path

import jax
import pytest

from sciad.cli._jax import cache_folder, configure
from sciad.cli._progress import progress_bar
from sciad.core import silent

VARIABLES = ("SCIAD_CACHE", "JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA")


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets the environment's variables and the platform; others are unset."""

    def set_up(platform="linux", **variables):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.platform", platform)

    return set_up


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "/home/me/.cache/sciad/xla"),
        ("linux", {"XDG_CACHE_HOME": "/var/cache/me"}, "/var/cache/me/sciad/xla"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/me/.cache/sciad/xla"),
        ("linux", {"SCIAD_CACHE": ""}, "/home/me/.cache/sciad/xla"),
        ("linux", {"SCIAD_CACHE": "/scratch/cache"}, "/scratch/cache"),
        ("linux", {"SCIAD_CACHE": "~/here", "XDG_CACHE_HOME": "/var/cache/me"}, "/home/me/here"),
        ("linux", {"SCIAD_CACHE": "0"}, None),
        ("linux", {"SCIAD_CACHE": "0", "XDG_CACHE_HOME": "/var/cache/me"}, None),
        ("linux", {"JAX_COMPILATION_CACHE_DIR": "/mine"}, None),
        ("linux", {"JAX_COMPILATION_CACHE_DIR": "/mine", "SCIAD_CACHE": "/scratch/cache"}, None),
        ("darwin", {"XDG_CACHE_HOME": "/var/cache/me"}, "/home/me/Library/Caches/sciad/xla"),
        ("win32", {"LOCALAPPDATA": "/home/me/AppData/Local"}, "/home/me/AppData/Local/sciad/xla"),
        ("win32", {}, "/home/me/.cache/sciad/xla"),
    ],
)
def test_cache_folder(environment, platform, variables, folder):
    environment(platform, HOME="/home/me", **variables)
    assert cache_folder() == (None if folder is None else Path(folder))


@pytest.fixture
def settings():
    """Put JAX's settings back after the test."""
    names = ("jax_enable_x64", "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_configure(environment, settings, tmp_path):
    environment(SCIAD_CACHE=str(tmp_path))
    jax.config.update("jax_enable_x64", False)
    configure()
    assert jax.config.jax_enable_x64
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


def test_configure_without_a_cache_leaves_jaxs_own_setting(environment, settings):
    before = jax.config.jax_compilation_cache_dir
    environment(SCIAD_CACHE="0")
    configure()
    assert jax.config.jax_compilation_cache_dir == before


def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    for quiet in (False, True):
        with progress_bar(quiet) as report:
            assert report is silent
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    with progress_bar(quiet=True) as report:
        assert report is silent
    with progress_bar() as report:
        assert report is not silent
        report(1, 4, "start 2 of 4")
    out, err = capsys.readouterr()
    assert out == ""
    assert "start 2 of 4" in err
    assert "25 %" in err
