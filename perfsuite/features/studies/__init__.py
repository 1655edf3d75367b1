"""One Python file per question defines ``STUDIES``, a tuple of Study; the TOML file next to it has the cells.

Files with an underscore run and print them.
"""
