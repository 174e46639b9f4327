"""OpenAI's Chat Completions, and every server that speaks them; how they differ is data."""
