"""Full-text indexes as tsvectors, and their maintenance. `entries` says what is indexed, `tsvector` how. `index_update`
keeps entries current: in the transaction of each write, and in the background after an upgrade. `trigram_index` is
built only for libraries that need it."""
