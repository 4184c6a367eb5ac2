"""Limits of chat turns, derived from the settings."""

from config.settings import Settings
from server.compat.agentkit.chat.turns import TurnLimits


def turn_limits(settings: Settings) -> TurnLimits:
    return TurnLimits(settings.item_max_chars, settings.metadata_max_bytes)


def turn_deadline_ms(settings: Settings) -> int:
    """The relay itself ends a turn after `chat_turn_max_s`; the rest is for storing it afterwards."""
    return round(settings.chat_turn_max_s * 1000) + settings.call_deadline_ms
