"""ChatGPT: its data export, and the database of the viewer chatGPT-browser."""
