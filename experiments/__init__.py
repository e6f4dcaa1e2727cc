"""Experiments on real models: one command each, a config and a seed in, one JSON file out."""
