"""A host of clients' documents, which servers trust."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.oauth.document_host import DocumentHost, open_document_host


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DocumentHost]:
    async with open_document_host(tmp_path / "host") as documents:
        monkeypatch.setenv("SSL_CERT_FILE", str(documents.authority))
        yield documents
