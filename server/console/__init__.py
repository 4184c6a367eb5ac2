"""The web pages for people: search, library, history, items, import, connect, sign-in, account, administration.

`routes.py` lists every page with its functions; read it first, then `viewer.py`: a page is admitted and runs the
operations of REST, so that it can do nothing that REST cannot. `browser.py` protects forms and starts sessions,
`pages.py` renders the templates, and `page_handler.py` turns errors into pages.
"""
