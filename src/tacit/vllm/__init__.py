"""vLLM as an engine: a server that Tacit starts, and trained weights on their way to it."""
