"""Builds the context that a backend is shown, from the history; nothing here writes to the history."""
