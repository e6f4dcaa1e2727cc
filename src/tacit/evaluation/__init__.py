"""Teams on held-out tasks: play, count, compare."""
