"""One file per device family; a file defines ``DEVICES``, a tuple of Device."""
