"""The demo of a bridge: two clusters, a killed bridge, a cut link, a producer that fails over."""

from app.demo.bridge.run import MESSAGES, run_demo

__all__ = ["MESSAGES", "run_demo"]
