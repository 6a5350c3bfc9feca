"""Whether the extender can run for ever: everything busy for a while, and nothing grows."""
