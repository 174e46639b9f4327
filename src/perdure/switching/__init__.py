"""Switches a conversation to another backend: derives a checkpoint, checks what is kept and lost, commits the switch."""
