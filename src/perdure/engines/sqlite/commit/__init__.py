"""The write path of the SQLite engine: prepare, group, apply."""
