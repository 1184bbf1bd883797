"""What a run knows of earlier runs, and the offset range that it covers."""
