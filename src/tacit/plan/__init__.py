"""What a run will take, before it is run: tokens, money and time from a small sample."""
