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
SOURCES = Path("native/src")
DIGEST = runpy.run_path("native/sources.py")["digest"](SOURCES)
CORE = Extension(
    "native._core",
    sorted(str(each) for each in SOURCES.glob("*.c")),
    depends=["setup.py", *sorted(str(each) for each in SOURCES.glob("*.h"))],
    define_macros=[("SOURCES", f'"{DIGEST}"')],
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


if has_compiler():
    setup(ext_modules=[CORE])
else:
    sys.stderr.write(
        "no C compiler with Python's headers: the native core is left out, Python does its work\n"
    )
    setup()
