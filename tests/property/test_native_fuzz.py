"""Damaged and forged fetches against the core, built with the compiler's sanitizers: what a broker sends must not end the interpreter."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

import native
from native.sources import digest

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 30
FLAGS: Final = (
    "-shared", "-fPIC", "-O1", "-g", "-std=c11", "-fno-omit-frame-pointer", "-DPy_LIMITED_API=0x030B0000",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
)  # fmt: skip


def _fuzz(seed: int, seconds: float, *more: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.property.fuzz_core", str(seed), str(seconds), *more],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds * 5 + 60,
        check=False,
    )


@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_a_while() -> None:
    """The core as it is, with freed memory overwritten: nothing ends the process, and nothing is left behind."""
    ended = _fuzz(1, 2, MALLOC_PERTURB_="165")

    assert ended.returncode == 0, ended.stderr[-3_000:] or ended.stdout


@pytest.mark.long
@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_with_sanitizers(tmp_path: Path) -> None:
    """No byte is read or written that is not the core's, and no number overflows."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not there")
    sources = map(str, sorted((ROOT / "native/src").glob("*.c")))
    built = tmp_path / "_core.so"
    carried = f'-DSOURCES="{digest(ROOT / "native/src")}"'
    command = [compiler, *FLAGS, carried, f"-I{sysconfig.get_path('include')}", *sources, "-o", str(built)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "libasan" in made.stderr and made.returncode:
        pytest.skip("gcc has no sanitizers here")
    assert made.returncode == 0, made.stderr
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    ended = _fuzz(
        2,
        SECONDS,
        str(built),
        LD_PRELOAD=" ".join(libraries),
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",  # else Python's own pools hide what is read behind the end of bytes
    )

    assert ended.returncode == 0, ended.stderr[-5_000:] or ended.stdout
