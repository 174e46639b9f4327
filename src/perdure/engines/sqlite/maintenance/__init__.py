"""Work on a whole SQLite store: scan, forget, back up, export."""
