"""Which architectures we walk through by ourselves, layer by layer, in play and in learning."""

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Layers of RMS norm, rotary attention and a gated MLP; logits are the output embedding applied to
the last hidden state, and no more."""
