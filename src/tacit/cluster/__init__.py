"""The same run on a Ray cluster (extra `ray`)."""
