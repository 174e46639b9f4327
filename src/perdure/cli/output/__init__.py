"""Turns results into text for people and JSON for programs."""
