"""Decoding on a GPU: paged keys and values, captured graphs, drawing without leaving the device."""
