"""A tool, its signature, and one execution of it."""
