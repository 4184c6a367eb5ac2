"""ChatGPT: its data export, and the database of the viewer chatGPT-browser."""

# Both give a conversation the same id. The export contains more, so importing it later adds what the viewer left out.
