"""What several wire formats share: frames of streams, ids, media, pairs of calls and results."""
