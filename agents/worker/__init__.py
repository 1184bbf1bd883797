"""The lanes of one worker process."""
