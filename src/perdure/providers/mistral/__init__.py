"""Mistral's chat: OpenAI's form, with ids, thinking, documents and a last turn of its own."""
