"""How the built-in kinds differ from plain data: one module a family."""
