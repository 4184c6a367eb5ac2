"""One module or package for each format that can be imported."""

# A format is recognized by its content, and `recognizes` returns how certain it is: 0.9 and more for marks that only
# this format has, about 0.5 for files that are known by their suffix, and less for formats that could be anything, such
# as plain text. `../registry.py` lists them; a test compares a sample of each with a golden file.
#
# Ids must never change: a later export with other ids would import everything once more.
