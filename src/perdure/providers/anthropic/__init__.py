"""Anthropic Messages: `anthropic-messages`."""
