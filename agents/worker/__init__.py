"""Lanes of one worker process."""
