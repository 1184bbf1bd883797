"""The demo: real traffic, a killed worker, a chain of handlers, and a check that imports nothing of Ringfence."""

from app.demo.run import MESSAGES, run_demo

__all__ = ["MESSAGES", "run_demo"]
