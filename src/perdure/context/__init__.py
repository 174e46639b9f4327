"""What a backend is shown: built from the history, never written to it."""
