"""Leaving a backend in mid-conversation: extract, summarise, validate, check, switch."""
