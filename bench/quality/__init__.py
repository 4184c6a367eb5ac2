"""A library of one person with questions judged across its sources, all written for this benchmark."""
