"""Passkeys: people sign in with a key on their device instead of a password (WebAuthn).

Challenges are derived from a secret of the browser, so that nothing is stored until one is used. Each can be used once,
for a few minutes. py_webauthn verifies the responses on a thread; it is imported with the first one.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64decode
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from auth.accounts.service import SignInFailed
from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.registry import UserRecord, require_printable, select_user
from auth.tokens import UsedTokens
from config.errors import Conflict, InvalidParams
from config.paths import UserId
from config.settings import Settings

# WebAuthn section 15.1 recommends 300 to 600 s for people to confirm a passkey.
_CHALLENGE_LIFETIME_S = 300.0

_RANDOM_BYTES = 16
_TIME_BYTES = 8
_HEAD_BYTES = _RANDOM_BYTES + _TIME_BYTES
_NAME_MAX_CHARS = 60
_NOT_ACCEPTED = "the passkey was not accepted; try again"


class Passkey(Struct, frozen=True):
    """A registered passkey. `id` is that of its credential, as hexadecimal text."""

    id: str
    name: str
    created_at: float
    last_used_at: float | None


class _ClientData(Struct, frozen=True):
    """The part of a response that names its challenge."""

    challenge: str


class _CredentialResponse(Struct, frozen=True, rename="camel"):
    client_data_json: str = msgspec.field(name="clientDataJSON")
    user_handle: str | None = None
    transports: tuple[str, ...] = ()


class _Credential(Struct, frozen=True, rename="camel"):
    raw_id: str
    response: _CredentialResponse


class Passkeys:
    def __init__(self, settings: Settings, database: ControlDatabase, used: UsedTokens) -> None:
        self._database = database
        self._max_per_user = settings.fixed.passkey_max_per_user
        self._used = used
        self._is_required = settings.password_requires_passkey
        self.rp_id = relying_party_id(settings)

    async def registration_options(self, user: UserRecord, browser_secret: str) -> str:
        """Returns the options for `navigator.credentials.create`, as JSON."""
        known = [bytes.fromhex(passkey.id) for passkey in await self.list(user.id)]

        def build() -> str:
            from webauthn import generate_registration_options, options_to_json  # noqa: PLC0415 - see above
            from webauthn.helpers import structs  # noqa: PLC0415 - see above

            options = generate_registration_options(
                rp_id=self.rp_id,
                rp_name="Florilegium",
                user_name=user.name,
                user_id=user.id.encode(),
                challenge=self._challenge(browser_secret),
                authenticator_selection=structs.AuthenticatorSelectionCriteria(
                    # Stored on the device, so that people sign in without entering a name.
                    resident_key=structs.ResidentKeyRequirement.REQUIRED,
                    user_verification=structs.UserVerificationRequirement.REQUIRED,
                ),
                exclude_credentials=[structs.PublicKeyCredentialDescriptor(id=identity) for identity in known],
            )
            return options_to_json(options)

        return await asyncio.to_thread(build)

    async def sign_in_options(self, browser_secret: str) -> str:
        """Returns the options for `navigator.credentials.get`, as JSON. They name no account: the device offers the
        passkeys that it has for this server."""

        def build() -> str:
            from webauthn import generate_authentication_options, options_to_json  # noqa: PLC0415 - see above
            from webauthn.helpers.structs import UserVerificationRequirement  # noqa: PLC0415 - see above

            challenge, required = self._challenge(browser_secret), UserVerificationRequirement.REQUIRED
            return options_to_json(
                generate_authentication_options(rp_id=self.rp_id, challenge=challenge, user_verification=required)
            )

        return await asyncio.to_thread(build)

    async def register(
        self, user: UserRecord, browser_secret: str, origin: str, credential: str, name: str, *, is_first: bool = False
    ) -> None:
        """Adds the passkey that the device has created. With `is_first`, only to a user who has none."""
        require_printable("name", name[:_NAME_MAX_CHARS])
        parsed = _parse(credential)
        challenge = await self._use_challenge(parsed, browser_secret)

        verified = await self._verify(credential, challenge, origin)
        row = (
            verified.credential_id,
            user.id,
            name[:_NAME_MAX_CHARS],
            verified.credential_public_key,
            verified.sign_count,
            " ".join(parsed.response.transports)[:200],
            time.time(),
        )

        def operation(db: ControlConnection) -> None:
            count = db.execute("SELECT count(*) FROM passkeys WHERE user_id = ?", (user.id,)).fetchone()[0]
            if is_first and count:
                raise Conflict("this account has a passkey; use it to sign in")
            if count >= self._max_per_user:
                raise Conflict(f"you have {count} passkeys already; remove one first")
            if db.execute("SELECT 1 FROM passkeys WHERE id = ?", (verified.credential_id,)).fetchone():
                raise Conflict("this passkey is registered already")
            db.execute(
                "INSERT INTO passkeys (id, user_id, name, public_key, sign_count, transports, created_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )

        await self._database.write(operation)

    async def sign_in(self, browser_secret: str, origin: str, credential: str) -> UserRecord:
        """Returns the user of the passkey that signed the challenge. Raises SignInFailed."""
        try:
            parsed = _parse(credential)
            challenge = await self._use_challenge(parsed, browser_secret)
        except InvalidParams as error:
            raise SignInFailed(_NOT_ACCEPTED) from error
        passkey_id = _decode(parsed.raw_id)

        def select(db: ControlConnection) -> tuple[UserRecord | None, bytes, int]:
            query = "SELECT user_id, public_key, sign_count FROM passkeys WHERE id = ?"
            row = db.execute(query, (passkey_id,)).fetchone()
            return (select_user(db, row[0]), row[1], row[2]) if row else (None, b"", 0)

        user, public_key, sign_count = await self._database.read(select)
        handle = parsed.response.user_handle
        if user is None or user.is_disabled or (handle and _decode(handle) != user.id.encode()):
            raise SignInFailed(_NOT_ACCEPTED, user.id if user else "")
        try:
            # A counter that does not increase is a copy of the key, and refused.
            verified = await self._verify(
                credential,
                challenge,
                origin,
                credential_public_key=public_key,
                credential_current_sign_count=sign_count,
            )
        except InvalidParams as error:
            raise SignInFailed(_NOT_ACCEPTED, user.id) from error
        # Meanwhile the passkey may have been removed, or a copy of it used with the same counter.
        statement = "UPDATE passkeys SET sign_count = ?, last_used_at = ? WHERE id = ? AND sign_count = ?"
        values = (verified.new_sign_count, time.time(), passkey_id, sign_count)
        if not await self._database.write(lambda db: db.execute(statement, values).rowcount):
            raise SignInFailed(_NOT_ACCEPTED, user.id)
        return user

    async def _verify(self, credential: str, challenge: bytes, origin: str, **stored: Any) -> Any:
        """Verifies that the device has created a passkey, or used the one that is `stored`. Raises InvalidParams."""

        def verify() -> Any:
            import webauthn  # noqa: PLC0415 - see above
            from webauthn.helpers.exceptions import WebAuthnException  # noqa: PLC0415 - see above

            verify_response: Any = webauthn.verify_registration_response
            if stored:
                verify_response = webauthn.verify_authentication_response
            try:
                return verify_response(
                    credential=credential,
                    expected_challenge=challenge,
                    expected_rp_id=self.rp_id,
                    expected_origin=origin,
                    require_user_verification=True,
                    **stored,
                )
            except (WebAuthnException, ValueError, TypeError, LookupError) as error:
                raise InvalidParams(_NOT_ACCEPTED) from error

        return await asyncio.to_thread(verify)

    async def list(self, user_id: UserId) -> list[Passkey]:
        statement = "SELECT id, name, created_at, last_used_at FROM passkeys WHERE user_id = ? ORDER BY created_at"
        rows = await self._database.read(lambda db: db.execute(statement, (user_id,)).fetchall())
        return [Passkey(identity.hex(), *rest) for identity, *rest in rows]

    @control_operation("withdraw")
    def remove(self, db: ControlConnection, user_id: UserId, passkey_id: str) -> None:
        """Removes a passkey of the user. Does nothing if it belongs to someone else."""
        try:
            identity = bytes.fromhex(passkey_id)
        except ValueError:
            return
        [others] = db.execute(
            "SELECT count(*) FROM passkeys WHERE user_id = ? AND id <> ?", (user_id, identity)
        ).fetchone()
        if self._is_required and not others:
            # Otherwise the password alone could add the next one.
            raise Conflict("this server requires a passkey; add another one before you remove the last")
        db.execute("DELETE FROM passkeys WHERE id = ? AND user_id = ?", (identity, user_id))

    def _challenge(self, browser_secret: str) -> bytes:
        head = secrets.token_bytes(_RANDOM_BYTES) + int(time.time()).to_bytes(_TIME_BYTES, "big")
        return head + _signature(browser_secret, head)

    async def _use_challenge(self, credential: _Credential, browser_secret: str) -> bytes:
        """Returns the challenge of a response, once, if it was made for this browser and not long ago."""
        try:
            client_data = msgspec.json.decode(_decode(credential.response.client_data_json), type=_ClientData)
        except msgspec.DecodeError as error:
            raise InvalidParams(_NOT_ACCEPTED) from error
        challenge = _decode(client_data.challenge)
        head, signature = challenge[:_HEAD_BYTES], challenge[_HEAD_BYTES:]
        age_s = time.time() - int.from_bytes(head[_RANDOM_BYTES:], "big")
        is_own = hmac.compare_digest(signature, _signature(browser_secret, head))
        is_recent = is_own and -1 <= age_s <= _CHALLENGE_LIFETIME_S
        if not is_recent or not await self._used.use(challenge, _CHALLENGE_LIFETIME_S + 1):
            raise InvalidParams("the passkey took too long; try again")
        return challenge


async def remove_all_passkeys(database: ControlDatabase, user_id: UserId) -> int:
    """Removes the passkeys of a user who has lost them, for the operator. Returns how many."""
    statement = "DELETE FROM passkeys WHERE user_id = ?"
    return await database.withdraw(lambda db: db.execute(statement, (user_id,)).rowcount)


def relying_party_id(settings: Settings) -> str:
    """Returns the domain that passkeys are bound to. Addresses cannot have passkeys; `localhost` can."""
    host = urlsplit(settings.base_url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return host
    return "localhost"


def _signature(browser_secret: str, head: bytes) -> bytes:
    return hmac.new(browser_secret.encode(), b"passkey" + head, hashlib.sha256).digest()


def _parse(credential: str) -> _Credential:
    try:
        return msgspec.json.decode(credential, type=_Credential)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(_NOT_ACCEPTED) from error


def _decode(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""
