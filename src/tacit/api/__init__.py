"""Models behind an OpenAI-compatible URL: asked within limits, every answer paid for once."""
