"""Device authorization (RFC 8628): a program without a browser shows a short code, and its user enters it elsewhere."""

import secrets
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from auth.control_database import ControlConnection, ControlDatabase
from auth.oauth.errors import OAuthError, invalid_grant
from auth.oauth.grants import (
    DEVICE_CODE,
    GrantRequest,
    Resources,
    TokenResource,
    generate_credential,
    hash_credential,
    insert_grant,
    is_credential,
    select_grant,
)
from auth.oauth.tokens import IssuedTokens, OAuthTokens, TokenRequest, client_problem
from config.errors import Unavailable
from config.settings import Settings

# Devices that wait at the same time: the more there are, the easier a code is guessed.
_OAUTH_DEVICE_CODES_MAX = 1000

# Time in which a person must enter the code of a device, who may have to sign in first.
OAUTH_DEVICE_CODE_TTL_S = 900.0

# RFC 8628 section 6.1: consonants only, so that no words are spelled. Eight of them have 34 bits.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_USER_CODE_LETTERS = 8
# RFC 8628 section 3.5: a client that polls too fast must wait this much longer between polls.
_SLOW_DOWN_S = 5.0


class DeviceRequest(Struct, frozen=True):
    """A program that waits for someone to enter its code."""

    user_code: str
    client_id: str
    scopes: frozenset[str]
    resource: TokenResource


class DeviceCodes:
    def __init__(
        self,
        database: ControlDatabase,
        settings: Settings,
        resources: Resources,
        tokens: OAuthTokens,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._settings = settings
        self._resources = resources
        self._tokens = tokens
        self._clock = clock

    async def create(self, client_id: str, scopes: frozenset[str], resource: TokenResource) -> tuple[str, str]:
        """Returns a new device code, for the program, and the user code, for the person."""
        device_code, now = generate_credential(DEVICE_CODE), self._clock()
        user_code = "".join(secrets.choice(_LETTERS) for _ in range(_USER_CODE_LETTERS))

        def operation(db: ControlConnection) -> None:
            db.execute("DELETE FROM oauth_device_codes WHERE expires_at < ?", (now,))
            (count,) = db.execute("SELECT count(*) FROM oauth_device_codes").fetchone()
            if count >= _OAUTH_DEVICE_CODES_MAX:
                raise Unavailable("too many programs are waiting for their codes; try again later", retry_after_s=60)
            db.execute(
                "INSERT INTO oauth_device_codes "
                "(hash, user_code, client_id, scopes, resource, expires_at, interval_s, state) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')",
                (
                    hash_credential(device_code),
                    user_code,
                    client_id,
                    " ".join(sorted(scopes)),
                    resource.url,
                    now + OAUTH_DEVICE_CODE_TTL_S,
                    self._settings.fixed.oauth_device_interval_s,
                ),
            )

        await self._database.write(operation)
        return device_code, user_code

    async def find(self, user_code: str) -> DeviceRequest | None:
        """Returns the waiting program with that user code."""
        return await self._database.read(lambda db: self._find(db, user_code))

    async def approve(self, user_code: str, request: GrantRequest) -> None:
        """Lets the program fetch tokens for what was granted. Raises if its code expired or was answered meanwhile."""
        now = self._clock()

        def operation(db: ControlConnection) -> None:
            self._require_pending(db, user_code)
            grant_id = insert_grant(db, request, now, self._settings.fixed.oauth_connections_max_per_user)
            db.execute(
                "UPDATE oauth_device_codes SET state = 'approved', grant_id = ? WHERE user_code = ?",
                (grant_id, user_code),
            )

        await self._database.write(operation)

    async def deny(self, user_code: str) -> None:
        def operation(db: ControlConnection) -> None:
            self._require_pending(db, user_code)
            db.execute("UPDATE oauth_device_codes SET state = 'denied' WHERE user_code = ?", (user_code,))

        await self._database.write(operation)

    async def poll(self, device_code: str, request: TokenRequest) -> IssuedTokens:
        """Returns tokens once the code was entered. Until then raises `authorization_pending` or `slow_down`."""
        if not is_credential(device_code, DEVICE_CODE):
            raise invalid_grant("device_code: not accepted")
        digest = hash_credential(device_code)
        outcome = await self._database.write(lambda db: self._poll(db, digest, request))
        if isinstance(outcome, OAuthError):
            raise outcome
        return outcome

    def _find(self, db: ControlConnection, user_code: str) -> DeviceRequest | None:
        row = db.execute(
            "SELECT user_code, client_id, scopes, resource FROM oauth_device_codes "
            "WHERE user_code = ? AND state = 'pending' AND expires_at > ?",
            (user_code, self._clock()),
        ).fetchone()
        if row is None:
            return None
        return DeviceRequest(row[0], row[1], frozenset(row[2].split()), self._resources.find([row[3]]))

    def _require_pending(self, db: ControlConnection, user_code: str) -> None:
        if self._find(db, user_code) is None:
            raise OAuthError("expired_token", "the code has expired or was used; start again on the device")

    # Errors are returned and not raised: the time of the poll, and a code that was used up, must be committed.
    def _poll(self, db: ControlConnection, digest: bytes, request: TokenRequest) -> IssuedTokens | OAuthError:
        row = db.execute(
            "SELECT client_id, expires_at, polled_at, interval_s, state, grant_id FROM oauth_device_codes "
            "WHERE hash = ?",
            (digest,),
        ).fetchone()
        if row is None or row[0] != request.client_id:
            return invalid_grant("device_code: not accepted")
        _, expires_at, polled_at, interval_s, state, grant_id = row
        now = self._clock()
        if now >= expires_at:
            return OAuthError("expired_token", "device_code: expired; start again")
        if polled_at is not None and now - polled_at < interval_s:
            self._update(db, digest, polled_at=now, interval_s=interval_s + _SLOW_DOWN_S)
            return OAuthError("slow_down", f"poll at most every {interval_s + _SLOW_DOWN_S:g} s")
        self._update(db, digest, polled_at=now)
        if state == "pending":
            return OAuthError("authorization_pending", "the code was not entered yet")
        db.execute("DELETE FROM oauth_device_codes WHERE hash = ?", (digest,))
        if state == "denied":
            return OAuthError("access_denied", "the request was denied")
        grant = select_grant(db, grant_id) if grant_id else None
        if grant is None or not grant.is_valid:
            return invalid_grant("device_code: not accepted")
        if problem := client_problem(grant, is_verified=request.is_client_verified):
            return problem
        return self._tokens.issue(db, grant, grant.scopes, has_refresh_token=request.has_refresh_token)

    def _update(self, db: ControlConnection, digest: bytes, **values: Any) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        db.execute(f"UPDATE oauth_device_codes SET {assignments} WHERE hash = ?", (*values.values(), digest))  # noqa: S608 - names of our own


def normalize_user_code(text: str) -> str:
    """Returns the letters of a code as people type it: in any case, with or without the hyphen."""
    return "".join(c for c in text.upper() if c.isascii() and c.isalpha())[:_USER_CODE_LETTERS]


def format_user_code(user_code: str) -> str:
    middle = _USER_CODE_LETTERS // 2
    return f"{user_code[:middle]}-{user_code[middle:]}"
