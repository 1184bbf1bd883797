"""Consumer groups: members, committed offsets, foreign members."""
