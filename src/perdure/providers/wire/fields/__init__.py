"""Keeps the fields that only their vendor reads, returns them to it, and reports where they are lost."""
