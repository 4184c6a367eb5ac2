"""One module or package for each format that can be imported. Read `markdown` first."""
