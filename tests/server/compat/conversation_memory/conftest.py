"""Two users of the memory tools."""

import pytest

from tests.server.compat.conversation_memory.memory_user import MemoryUser
from tests.server.rest.rest_client import RestClient


@pytest.fixture
async def ada(api: RestClient) -> MemoryUser:
    return MemoryUser(await api.library_user("ada"))


@pytest.fixture
async def ben(api: RestClient) -> MemoryUser:
    return MemoryUser(await api.library_user("ben"))
