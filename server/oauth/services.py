"""The services of the authorization server, shared by its endpoints and pages."""

from msgspec import Struct
from starlette.requests import Request

from auth.audit import Audit
from auth.oauth.client_assertions import ClientAssertions, MetadataDocuments, document_fetch, is_document_url
from auth.oauth.clients import OAuthClient, OAuthClients
from auth.oauth.device_codes import DeviceCodes
from auth.oauth.errors import RequestRejected
from auth.oauth.grants import GrantRecord, GrantRequest, OAuthGrants, Resources
from auth.oauth.metadata import format_scopes
from auth.oauth.tokens import OAuthTokens
from auth.rate_limits import LimitRule, RateLimit
from config.settings import Settings
from server.console.browser import client_address
from server.runtime import Runtime

# Requests of one address that are allowed at once, and those for one that registers a client or a device.
_BURST = 100
_REQUESTS_PER_REGISTRATION = 60

# New clients and device codes are stored, so there are fewer of them than of other requests.
_REGISTRATION_BURST = 20


class OAuthLimits(Struct, frozen=True):
    """Requests to the endpoints and new clients, per address, and failed attempts to guess a secret or a code."""

    requests: RateLimit
    registrations: RateLimit
    failures: RateLimit


class OAuthServices(Struct, frozen=True, kw_only=True):
    settings: Settings
    resources: Resources
    clients: OAuthClients
    documents: MetadataDocuments
    assertions: ClientAssertions
    grants: OAuthGrants
    tokens: OAuthTokens
    device_codes: DeviceCodes
    limits: OAuthLimits
    audit: Audit
    sources: tuple[str, ...]

    def record(self, action: str, grant: GrantRequest | GrantRecord, request: Request) -> None:
        """Records an event of a connection in the audit log of its user."""
        self.audit.record(
            action,
            grant.user.id,
            client=grant.client_id,
            target=grant.client_name,
            address=client_address(request),
            detail=format_scopes(grant.scopes),
        )

    def is_document(self, client_id: str) -> bool:
        return self.settings.oauth_client_metadata and is_document_url(client_id)

    async def find_client(self, client_id: str) -> OAuthClient:
        """Returns a client for a person who is signed in: its metadata document is fetched if it has one."""
        # The id of such a client is the URL of its metadata document; nothing about it is stored here.
        if self.is_document(client_id):
            return await self.documents.find(client_id)
        client = await self.clients.find(client_id)
        if client is None:
            raise RequestRejected(
                "this application is not registered here, or no longer; remove the connection in the application and "
                "add it again"
            )
        return client


def build_oauth_services(runtime: Runtime) -> OAuthServices:
    settings, database = runtime.settings, runtime.registry.database
    resources, tokens = Resources(settings, runtime.dispatcher.profiles.names), OAuthTokens(database, settings)
    # Documents and keys of clients are fetched under the same rules.
    fetch = document_fetch(settings)
    documents = MetadataDocuments(fetch)
    make_limit, per_minute = runtime.stores.make_limit, settings.rate_oauth_per_minute
    registrations = (per_minute / _REQUESTS_PER_REGISTRATION, _REGISTRATION_BURST)
    limits = OAuthLimits(
        make_limit(LimitRule("oauth", "OAuth requests", per_minute, _BURST)),
        make_limit(LimitRule("oauth registration", "new OAuth clients", *registrations)),
        runtime.limits.failures,
    )
    return OAuthServices(
        settings=settings,
        resources=resources,
        clients=OAuthClients(database, settings),
        documents=documents,
        assertions=ClientAssertions(database, settings, documents, fetch),
        grants=runtime.oauth_grants,
        tokens=tokens,
        device_codes=DeviceCodes(database, settings, resources, tokens),
        limits=limits,
        audit=runtime.audit,
        sources=tuple(source.name for source in runtime.knowledge.sources),
    )
