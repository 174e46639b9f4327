"""Providers: what a backend is to a run, and the translators for each vendor's wire format."""
