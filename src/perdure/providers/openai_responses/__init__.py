"""OpenAI Responses: items with ids, reasoning that belongs to its output, tools of the server's own."""
