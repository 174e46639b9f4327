"""Turns messages, notes and tool calls into the text that a model is shown."""
