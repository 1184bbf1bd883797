"""The worker: a Faust app around the lanes, its transport, its pages."""
