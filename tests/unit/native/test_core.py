"""Which path runs, and who says so."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka.record.util import calc_crc32c

import native
from agents.batch import native_records
from tests.support.records.stored_batches import Stored, stored

ROOT = Path(__file__).parents[3]


def _said(value: str, *command: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env=os.environ | {native.VARIABLE: value}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_python_by_order() -> None:
    """A forced Python path is reported with its cause, and the default path is reported too."""
    assert _said("off", "-m", "app", "--version")[1].endswith("(path: Python, by RINGFENCE_NATIVE=off)\n")
    assert _said("off", "-m", "native") == (0, "workers run on: Python, by RINGFENCE_NATIVE=off\n")
    status, text = _said("on", "-c", "import native; print(native.spoken)")
    assert (status, "=off" in text) == (0, False)


def test_another_value(tmp_path: Path) -> None:
    """A value other than on and off is refused in one line, and the worker does not start."""
    config = tmp_path / "r.toml"
    config.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[[addresses]]\nname = "orders"\n')
    code, text = _said("0", "-m", "app", "worker", "--config", str(config))

    assert code == 2
    assert "RINGFENCE_NATIVE = '0' is neither on nor off" in text
    assert "Traceback" not in text


def test_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that is not built reads nothing, and is not asked."""
    monkeypatch.setattr(native, "core", None)
    found = native_records.parse(stored([Stored(0)]), 0, [], lambda _codec, _data: None)

    assert found is None
    assert native_records.plain([]) is None


def test_a_build_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core left by an earlier version is not called, because its functions may take other arguments."""
    if native.core is None:
        pytest.skip(native.spoken)
    monkeypatch.setattr(native.core, "INTERFACE", 0)

    assert native._load() == (None, "Python: the native core is of another version")


@pytest.mark.skipif(native.core is None, reason=native.spoken)
def test_checksums() -> None:
    """The checksum equals aiokafka's for any length, by the processor's instruction and by the table."""
    assert native.core is not None
    for length in (*range(40), 1_000, 65_537):
        data = random.Random(length).randbytes(length)

        assert {native.core.crc32c(data, item) for item in (False, True)} == {calc_crc32c(data)}


def test_a_build_of_other_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A rule of the core changes without its interface: an older build would decide by the older rule."""
    if native.core is None:
        pytest.skip(native.spoken)
    for path in (ROOT / "native" / "src").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(native, "_SOURCES", tmp_path)
    same = native._load()
    changed = tmp_path / "plan.c"
    changed.write_bytes(changed.read_bytes() + b"/* another rule */")

    assert same == (native.core, "native core")
    assert native._load() == (None, "Python: the native core was built from other sources")
