"""Error messages of the memory tools. conversation-memory's clients match on these sentences; details follow them."""

from config.errors import InvalidParams

NOT_A_QUERY = "Query must be string or array"
TOO_SHORT = "Query must be at least 2 characters"
WRONG_COUNT = "Query array must have 2-5 items"
TOO_FEW_CONCEPTS = "Must provide at least 2 concepts for multi-concept search"
TOO_MANY_CONCEPTS = "Cannot search more than 5 concepts at once"
BAD_DATE = "Invalid date format"
DATE_FORMAT = "Date must be in YYYY-MM-DD format"
BAD_ID = "Invalid observation ID"
NO_IDS = "Must provide at least 1 observation ID"
TOO_MANY_IDS = "Cannot get more than 20 observations at once"
NO_PATH = "Path is required"
NO_FILE = "File not found"
BAD_LINES = "Invalid line range"

NO_OBSERVATIONS = "No observations found matching your query."
NO_CONVERSATIONS = "No conversations found"

_DETAIL_MAX_CHARS = 200


def memory_error(sentence: str, detail: str = "") -> InvalidParams:
    return InvalidParams(f"Error: {sentence}: {detail[:_DETAIL_MAX_CHARS]}" if detail else f"Error: {sentence}")


def file_not_found(path: str) -> InvalidParams:
    return memory_error(NO_FILE, path)
