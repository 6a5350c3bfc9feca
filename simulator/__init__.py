"""A whole cluster in one process, for people and tests without one."""
