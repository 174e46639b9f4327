"""Turns the edits that a caller makes into the patch that a commit stores."""
