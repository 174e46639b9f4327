"""The wire format of Gemini's Interactions API: a conversation is a list of typed steps."""
