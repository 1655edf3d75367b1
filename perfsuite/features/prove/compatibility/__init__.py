"""Which engine goes with which technique: the catalog's claims, the cells that prove them, and the table of both."""
