"""Google Gemini: contents and parts, signed thoughts, results in one turn, tools of the server's own."""
