"""The steps of a lane's opening; their order is in :mod:`agents.lane.open`."""
