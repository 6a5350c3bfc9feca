"""Planning: goals in, the fewest moves out, with the proof of how few could do."""
