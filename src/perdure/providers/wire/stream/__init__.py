"""Reads the bytes of a streamed reply: server-sent events, AWS event streams, and the events of a reply."""
