"""Seeing a run: one page as a file (`tacit report`), the same page live (`tacit watch`), or text.

Everything is read from the run folder and nothing else, by a reader that takes folders as they are:
under way, torn, with files missing, or of an older layout.
"""
