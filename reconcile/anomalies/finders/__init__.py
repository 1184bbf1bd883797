"""One module for each kind of evidence: which anomalies it shows."""
