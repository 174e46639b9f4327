"""What a row looks like on disk: keys, packed records and the index."""
