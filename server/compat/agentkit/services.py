"""Constructs the services behind AgentKit's API; `server.lifespan` calls this once."""

from msgspec import Struct

from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from config.settings import Settings
from server.compat.agentkit.archives import ArchiveService
from server.compat.agentkit.changes import ConversationChanges
from server.compat.agentkit.chat.completions import CompletionService
from server.compat.agentkit.chat.passages import PassageFinder
from server.compat.agentkit.chat.service import ChatService
from server.compat.agentkit.chat.upstream import Upstream
from server.compat.agentkit.conversations import ConversationService
from server.compat.agentkit.namespaces import NamespaceService
from server.compat.agentkit.recording import RecordingService
from server.transports.open_streams import OpenStreams
from sources.storage.contract import Libraries


class AgentKit(Struct, frozen=True, kw_only=True):
    conversations: ConversationService
    changes: ConversationChanges
    recording: RecordingService
    archives: ArchiveService
    namespaces: NamespaceService
    passages: PassageFinder
    chat: ChatService
    completions: CompletionService


def build_agentkit(
    settings: Settings, libraries: Libraries, aggregator: Aggregator, retriever: Retriever, open_streams: OpenStreams
) -> AgentKit:
    passages, upstream = PassageFinder(libraries, aggregator, retriever, settings), Upstream.from_settings(settings)
    return AgentKit(
        conversations=ConversationService(libraries, open_streams, settings),
        changes=ConversationChanges(libraries, open_streams, settings),
        recording=RecordingService(libraries),
        archives=ArchiveService(libraries, open_streams, settings),
        namespaces=NamespaceService(libraries),
        passages=passages,
        chat=ChatService(libraries, passages, upstream, settings),
        completions=CompletionService(libraries, open_streams, passages, upstream, settings),
    )
