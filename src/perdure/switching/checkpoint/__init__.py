"""Derives, stores and validates the StateCheckpoint that a switch hands over."""
