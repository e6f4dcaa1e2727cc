"""Programs that run inside the sandbox, passed in as source: standard library only."""
