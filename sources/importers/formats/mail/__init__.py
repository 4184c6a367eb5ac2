"""Email: mbox files and single messages. `messages.py` parses messages and finds them in an mbox file; `importer.py`
makes items of them. An mbox file is read twice, first the headers and then thread by thread, because the messages of a
thread are anywhere in it."""
