"""One TOML file per device family, with a table for each Device. A user's own file defines ``DEVICES`` in Python."""
