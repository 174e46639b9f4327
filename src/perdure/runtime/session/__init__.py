"""What a live run owns: its lease, its records, its journal and its caches."""
