"""What a write to the server takes: the call of the general function, and the short statement for a commit on a known end."""
