"""How the pocket model was made: corpus, tokenizer, training, measuring."""
