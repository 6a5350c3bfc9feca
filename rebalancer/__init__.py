"""The daemon that plans the fewest moves and carries them out."""
