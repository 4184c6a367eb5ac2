"""Full-text indexes as tsvectors, and their maintenance. `entries` says what is indexed. `index_update` keeps entries
current: in the transaction of each write, and in the background after an upgrade."""
