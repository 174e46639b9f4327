"""Reads the bytes of a streamed reply: server-sent events, and the events of a reply."""
