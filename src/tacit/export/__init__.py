"""Trained weights for other programs: peft adapters, plain model folders, GGUF files."""
