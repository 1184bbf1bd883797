"""The native core is built where a C compiler is. Elsewhere it is left out with a line, and the distribution is pure."""

import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup

PROBE = "#include <Python.h>\nint main(void) { return Py_IsInitialized(); }\n"
LIMITED_API = "0x030B0000"
"""The core uses what CPython 3.11 and all later versions share (its stable ABI): one build, and one wheel, serves them."""
SOURCES = Path("native/src")
DIGEST = runpy.run_path("native/sources.py")["digest"](SOURCES)
CORE = Extension(
    "native._core",
    sorted(str(path) for path in SOURCES.glob("*.c")),
    depends=["setup.py", *sorted(str(path) for path in SOURCES.glob("*.h"))],
    define_macros=[("SOURCES", f'"{DIGEST}"'), ("Py_LIMITED_API", LIMITED_API)],
    py_limited_api=True,
    # No debugging information: it has the folder's name in it, and the same commit is to give the same bytes.
    extra_compile_args=["-O2", "-g0", "-std=c11", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
    optional=True,
)


def has_compiler() -> bool:
    """Whether something that includes Python's headers can be compiled."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "probe.c"
        source.write_text(PROBE)
        command = [
            *shlex.split(compiler),
            "-c",
            str(source),
            "-o",
            f"{source}.o",
            "-I",
            sysconfig.get_path("include"),
        ]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603
        except OSError:
            return False


def obstacle() -> str | None:
    """Why the core cannot be built."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "a free-threaded Python has no stable ABI"
    return None if has_compiler() else "no C compiler with Python's headers"


if reason := obstacle():
    sys.stderr.write(f"{reason}: the native core is left out, Python does its work\n")
    setup()
else:
    setup(ext_modules=[CORE], options={"bdist_wheel": {"py_limited_api": "cp311"}})
