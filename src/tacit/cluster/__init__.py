"""The same training run on a Ray cluster: workers play and grade episodes, one process learns."""
