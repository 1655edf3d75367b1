"""Everything as text: for the terminal and Markdown in text/, for a browser in html/."""
