"""Names and byte layouts that all parts of Ringfence share. Pure."""
