"""``ringfence audit``: measures the duplicates of one topic before Ringfence is installed."""
