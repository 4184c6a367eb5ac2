"""Keeps a library current with folders, files and databases that other programs change.

`sync.py` is one run over a folder or file and the place to start; `url_sync.py` is the same for a URL. A run looks at
files (`scan.py`), recognizes renamed ones and decides how a folder is read (`note_files.py`), gives items their ids and
writes edited notes back (`identities.py`), and copies databases in a process of their own (`database_copy.py`,
`copy_process.py`, `changed_rows.py`). `state.py` has what is remembered between runs. `server/following` decides when
to run.
"""
