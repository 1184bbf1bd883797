"""``ringfence audit``: what a topic's records say about duplicates, before anything is installed."""
