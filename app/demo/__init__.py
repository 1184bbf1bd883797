"""The demo: real traffic, a killed worker, and a check that imports nothing of Ringfence."""

from app.demo.run import MESSAGES, run

__all__ = ["MESSAGES", "run"]
