"""The demo of a bridge: two clusters, a bridge that dies, a link that is cut, a producer that fails over."""

from app.demo.bridge.run import MESSAGES, run

__all__ = ["MESSAGES", "run"]
