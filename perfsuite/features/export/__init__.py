"""``--perf-export``: results where a team looks. Each place is a file here, and takes results by one hook of pytest."""
