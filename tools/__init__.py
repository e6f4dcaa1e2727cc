"""Programs that made what the package ships; not installed."""
