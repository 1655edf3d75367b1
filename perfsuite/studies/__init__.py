"""One file per question; a file defines ``STUDIES``, a tuple of Study. Files with an underscore run and print them."""
