"""Names and byte layouts that every part of Ringfence agrees on. Pure."""
