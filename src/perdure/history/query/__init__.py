"""Questions about the past: diff, blame and bisect."""
