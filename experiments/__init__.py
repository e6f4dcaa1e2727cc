"""Experiments on real models: recipes, and the programs that keep and tabulate what they find."""
