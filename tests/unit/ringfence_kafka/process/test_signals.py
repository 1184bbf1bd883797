import os
import signal
import threading
import time

import pytest

from ringfence_kafka.process.signals import InterruptedBySignalError, Interruption


def test_signals_are_noted_not_raised() -> None:
    """A signal shows at the next check and nowhere before; the former handlers come back."""
    former = signal.getsignal(signal.SIGTERM)
    with Interruption() as interruption:
        interruption.check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(InterruptedBySignalError) as caught:
            interruption.check()

    assert caught.value.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is former


def test_a_signal_ends_a_sleep() -> None:
    began = time.monotonic()
    with Interruption() as interruption:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(InterruptedBySignalError):
            interruption.sleep(30)

    assert time.monotonic() - began < 10


def test_an_immediate_signal_raises_once() -> None:
    """An immediate signal breaks off a wait at once; a second one does not break off the clean-up."""
    cleaned = []

    def wait_and_clean() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleaned.append(True)

    with Interruption() as interruption, pytest.raises(InterruptedBySignalError), interruption.immediate():
        wait_and_clean()

    assert cleaned == [True]
