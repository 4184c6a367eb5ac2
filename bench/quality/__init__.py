"""The library of one person with judged queries across its sources, written for this benchmark."""
