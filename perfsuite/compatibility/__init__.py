"""Which engine goes with which technique: what the catalog claims, the cell that proves it, and the table of both."""
