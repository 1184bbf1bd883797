"""How everything stands: addresses, lanes, consumers, bridges; and why something has stopped."""
