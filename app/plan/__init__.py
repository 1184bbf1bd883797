"""What a load needs: partitions, workers, memory, disk, traffic. Pure, but for the printing; from what was measured."""
