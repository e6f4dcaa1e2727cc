"""What a run will take, before it is run: by a small sample, or by arithmetic alone."""
