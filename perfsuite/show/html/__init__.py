"""HTML documents for people: their parts, their charts, and the report of a run."""
