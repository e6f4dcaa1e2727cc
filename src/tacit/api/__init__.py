"""Models behind an OpenAI-compatible URL, with rate limits and an answer cache."""
