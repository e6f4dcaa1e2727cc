"""vLLM as an engine: the server that Tacit starts, and the export of trained weights to it."""
