import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library than glibc")
def test_large_messages_leave_nothing() -> None:
    """Large messages leave no memory behind, however many there were and whatever was allocated between them."""
    program = """
from pathlib import Path
from ringfence_kafka.process import gc_settings

gc_settings.give_back_large()
first = bytearray(900_000)
del first
large, small = [], []
before = int(Path("/proc/self/statm").read_text("ascii").split()[1])
for _ in range(100):
    large.append(bytearray(900_000))
    small.append(bytearray(600))
large.clear()
print((int(Path("/proc/self/statm").read_text("ascii").split()[1]) - before) * 4096)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert int(done.stdout) < 10 * 2**20
