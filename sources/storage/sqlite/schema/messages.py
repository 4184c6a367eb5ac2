"""What is indexed for a message, as SQL expressions.

Agents search `chats_index`, which contains no text of a human-only message, not even as the context of another one.
Neither a hit, nor a count, nor a rank can therefore depend on such a text. People search both indexes.
"""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

# A message `m` is indexed with its sender, its content and its date, for queries such as "what did Ana say in May".
MESSAGE_OWN = """
    coalesce(m.text_seg, m.sender || ': ' || m.content) || ' '
    || CAST(substr(m.created_at, 9, 2) AS INTEGER) || ' ' || CASE substr(m.created_at, 6, 2)
        WHEN '01' THEN 'January' WHEN '02' THEN 'February' WHEN '03' THEN 'March' WHEN '04' THEN 'April'
        WHEN '05' THEN 'May' WHEN '06' THEN 'June' WHEN '07' THEN 'July' WHEN '08' THEN 'August'
        WHEN '09' THEN 'September' WHEN '10' THEN 'October' WHEN '11' THEN 'November' ELSE 'December' END
    || ' ' || substr(m.created_at, 1, 4)
"""
# And, with a lower weight, with a context: the two messages before it that agents may read.
#
# A short message often makes sense only together with these ("The blue one, on Friday"). A long one says what it is
# about, and its words in the entries of its neighbours would only hide where they were written. So a message of more
# than CONTEXT_CHARS ends the context, and no word of it is in there; of a question that long, its answer has the
# beginning. 99 % of the messages between people are shorter: the bound is for answers of assistants, logs and letters.
# A name before each message is left out: it would make every reply to a person a match for the name.
CONTEXT_CHARS = 400
BOUNDED_TEXT = f"""
    CASE WHEN length(text) <= {CONTEXT_CHARS} THEN text
        WHEN role = 'user' AND m.role = 'assistant' THEN
            rtrim(substr(text, 1, {CONTEXT_CHARS}), replace(substr(text, 1, {CONTEXT_CHARS}), ' ', ''))
        ELSE '' END
"""
# The length of the message between a message of the context and the one that is indexed.
CHARS_BETWEEN = "lag(length(text), 1, 0) OVER (ORDER BY position DESC)"
MESSAGE_CONTEXT = f"""
    CASE m.human_only WHEN 1 THEN '' ELSE coalesce((SELECT group_concat(text, ' ') FROM (
        SELECT {BOUNDED_TEXT} AS text, {CHARS_BETWEEN} AS chars_between FROM (
            SELECT coalesce(p.text_seg, p.content) AS text, p.role, p.position FROM messages p
            WHERE p.conversation_id = m.conversation_id AND p.position < m.position AND p.deleted = 0
                AND p.human_only = 0
            ORDER BY p.position DESC LIMIT 2)
        ORDER BY position DESC) WHERE chars_between <= {CONTEXT_CHARS}), '') END
"""
