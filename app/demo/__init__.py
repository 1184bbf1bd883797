"""The demo: real traffic, a killed worker, and a check that imports nothing of Ringfence."""

from app.demo.run import run

__all__ = ["run"]
