"""Turns arguments, files and what a person types into objects."""
