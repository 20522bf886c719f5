"""How the command sets JAX up; a script does this for itself."""

import os
import sys
from pathlib import Path


def configure() -> None:
    """Switch float64 on, and keep compiled programs in the user's cache folder.

    `SCIAD_CACHE=0` switches the cache off, `SCIAD_CACHE=FOLDER` moves it; a cache that the user has set up for JAX by
    `JAX_COMPILATION_CACHE_DIR` is used as it is.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    folder = cache_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def cache_folder() -> Path | None:
    """Return where compiled programs are kept, or None where they are not, or not by us."""
    wish = os.environ.get("SCIAD_CACHE", "")
    if wish == "0" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    if wish:
        return Path(wish).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME")
    return Path(base or "~/.cache").expanduser() / "sciad" / "xla"
