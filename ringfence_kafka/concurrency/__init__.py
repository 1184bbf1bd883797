"""Helpers for asyncio: coalesced requests, time slices, timeouts."""
