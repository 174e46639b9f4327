"""What operators do with a store: restore it from a backup, and let old content go."""
