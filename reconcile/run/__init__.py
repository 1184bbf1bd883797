"""One reconciliation run: history, frames, measures, verdict, outcome."""
