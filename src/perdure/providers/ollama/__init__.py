"""Ollama's native chat: Chat with thinking, images beside the words, and options in an object of their own."""
