"""Code that several wire formats share: streams, ids, media, pairs of calls and results."""
