"""What the results of other systems' searches say if meanings were not compared."""

from sources.records import SemanticStatus


def meaning_note(status: SemanticStatus) -> str | None:
    """Says what was not compared by meaning, and why."""
    match status.status:
        case "on":
            return None
        case "partial":
            percent = int((status.coverage or 0) * 100)
            reason = status.reason or "the others have no embeddings yet"
            return f"Only {percent}% of the texts were compared by meaning: {reason}."
        case "off":
            return "Searched by text: no embedding model is configured."
        case "unavailable":
            return f"Searched by text: {status.reason}."
        case "not_applicable":
            return "Searched by text: the query requires its words."
