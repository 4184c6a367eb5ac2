"""The pages to sign in, and the account page: password, passkeys, browsers, usage, and the person's own data."""

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.passkeys import relying_party_id
from auth.accounts.service import PASSWORD_MAX_CHARS, AccountLink, Accounts, LinkKind, SignInFailed
from auth.authenticator import local_principal
from auth.browser_sessions import BrowserSession, browser_principal
from auth.context import build_context
from auth.openid import OpenIdFailed
from auth.registry import UserRecord
from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound, RateLimited
from config.logging import current_request_id
from config.openid import OpenIdProvider
from config.settings import Settings
from server.console import browser
from server.console.page_handler import PersonalPage, Viewer
from server.console.pages import N_, _
from server.error_responses import error_headers
from server.http_services import HttpServices
from server.operations import account, own_data
from server.operations.operation import NoArguments, is_recent, require_recent_sign_in
from server.operations.users import UserRequest, adopt_local, find_adoptable
from server.runtime import Runtime

# -- sign-in -----------------------------------------------------------------------------------------------------------

_NAME_MAX_CHARS = 128


class SignInPages:
    """Sign-in with a password, an OpenID Connect provider or a passkey, and the passkeys of the account page."""

    def __init__(self, settings: Settings, services: HttpServices) -> None:
        self._settings = settings
        self._browser = services.browser
        self._accounts = services.accounts
        self._openid = services.openid
        self._passkeys = services.passkeys

    async def show(self, request: Request) -> Response:
        target = browser.safe_path(request.query_params.get("next", ""))
        session, is_again = await self._browser.session_of(request), "again" in request.query_params
        if session is not None and not is_again:
            return browser.see_other(target)
        if await self._browser.partial_session_of(request) is not None:
            return browser.see_other(browser.second_factor_path(target))
        providers = self._settings.openid_providers
        if len(providers) == 1 and not self._settings.password_sign_in and "next" in request.query_params:
            # Nothing to choose. After signing out, the page is shown: there is no `next` then.
            return browser.see_other(_start_path(providers[0], target))
        is_deleted = "deleted" in request.query_params
        done = _("Your account is deleted.") if is_deleted else _("Please sign in again.") if is_again else ""
        response = await self._page(request, target, done=done)
        if session is None:
            return response
        # A passkey is bound to the secret of the browser before sign-in, which a browser with a session may not have.
        return self._browser.with_form_secret(request, response, self._browser.form_secret(request))

    async def sign_in(self, request: Request) -> Response:
        values = await self._browser.check_form(request)
        if not self._settings.password_sign_in:
            raise NotFound("page", browser.SIGN_IN_PATH)
        target, name = browser.safe_path(values.get("next", "")), values.get("name", "")
        address, known_secret = browser.client_address(request), self._browser.known_secret(request)
        try:
            signed_in = await self._accounts.sign_in(name, values.get("password", ""), address, known_secret)
        except (SignInFailed, RateLimited) as error:
            if isinstance(error, SignInFailed):
                self._browser.record(request, "sign_in.failed", error.user_id, detail="password")
            response = await self._page(request, target, name=name, error=error)
            response.headers.update(error_headers(self._settings, error))
            return response
        return await self._browser.sign_in(
            request,
            signed_in.user,
            target,
            method="password",
            is_by_password=True,
            password_changed_at=signed_in.password_changed_at,
        )

    async def sign_out(self, request: Request) -> Response:
        # With a token, so that other sites cannot sign people out.
        await self._browser.check_form(request)
        return await self._browser.sign_out(request)

    async def _page(
        self, request: Request, target: str, *, name: str = "", done: str = "", error: FlorilegiumError | str = ""
    ) -> Response:
        return await self._browser.render(
            request,
            "sign-in.html",
            next=target,
            name=name[:_NAME_MAX_CHARS],
            done=done,
            error=error,
            has_passwords=self._settings.password_sign_in,
            has_passkeys=self._settings.passkey_sign_in,
            passkey_domain=relying_party_id(self._settings),
            providers=[(p.title, _start_path(p, target)) for p in self._settings.openid_providers],
        )

    # -- OpenID Connect: the way to a provider and back --

    async def start_openid(self, request: Request) -> Response:
        """Leads to the provider. It changes nothing here, so that it can be a link."""
        secret, target = self._browser.form_secret(request), browser.safe_path(request.query_params.get("next", ""))
        location = await self._openid.start(request.path_params["provider"], secret, target)
        return self._browser.with_form_secret(request, browser.see_other(location), secret)

    async def complete_openid(self, request: Request) -> Response:
        provider, secret = request.path_params["provider"], self._browser.form_secret(request)
        try:
            user, target = await self._openid.complete(provider, secret, dict(request.query_params))
        except OpenIdFailed as error:
            # Not what anyone can cause with a forged address: that would fill the log.
            if error.subject:
                detail = f"openid {provider}"
                self._browser.record(request, "sign_in.failed", error.user_id, target=error.subject, detail=detail)
            raise
        return await self._browser.sign_in(request, user, browser.safe_path(target), method=f"openid {provider}")

    # -- passkeys: their script, `passkeys.js`, asks the device and sends ordinary forms --

    async def passkey_options(self, request: Request) -> Response:
        await self._browser.check_form(request)
        return _json(await self._passkeys.sign_in_options(self._browser.form_secret(request)))

    async def sign_in_with_passkey(self, request: Request) -> Response:
        values = await self._browser.check_form(request)
        secret, origin = self._browser.form_secret(request), self._browser.own_origin(request)
        try:
            user = await self._passkeys.sign_in(secret, origin, values.get("credential", ""))
        except SignInFailed as error:
            if error.user_id:  # not for passkeys that do not exist, which anyone can make up
                self._browser.record(request, "sign_in.failed", error.user_id, detail="passkey")
            raise
        # The second factor of someone who has entered a password must be of the same person.
        partial = await self._browser.partial_session_of(request)
        if partial is not None and partial.user.id != user.id:
            raise SignInFailed("this passkey belongs to another account than the password", user.id)
        return await self._browser.sign_in(request, user, browser.safe_path(values.get("next", "")), method="passkey")

    async def show_second_factor(self, request: Request) -> Response:
        """The page for someone who has entered a password where a passkey is required, too."""
        target = browser.safe_path(request.query_params.get("next", ""))
        partial = await self._browser.partial_session_of(request)
        if partial is None:
            return browser.see_other(target)
        return await self._browser.render(
            request,
            "second-factor.html",
            name=partial.user.name,
            has_passkey=bool(await self._passkeys.list(partial.user.id)),
            passkey_domain=self._passkeys.rp_id,
            next=target,
        )

    async def first_passkey_options(self, request: Request) -> Response:
        partial = await self._require_first_passkey(request)
        await self._browser.check_form(request)
        return _json(await self._passkeys.registration_options(partial.user, self._browser.form_secret(request)))

    async def add_first_passkey(self, request: Request) -> Response:
        """Adds the first passkey of someone who has only a password, and signs them in."""
        partial = await self._require_first_passkey(request)
        values = await self._browser.check_form(request)
        user = partial.user
        await self._add_passkey(request, user, self._browser.form_secret(request), values, is_first=True)
        return await self._browser.sign_in(
            request, user, browser.safe_path(values.get("next", "")), method="first passkey"
        )

    async def _require_first_passkey(self, request: Request) -> BrowserSession:
        """A password must not be enough to add a passkey to an account that has one."""
        partial = await self._browser.partial_session_of(request)
        if partial is None:
            raise browser.sign_in_required(request)
        require_recent_sign_in(browser_principal(partial))
        if await self._passkeys.list(partial.user.id):
            raise Conflict("this account has a passkey; use it to sign in")
        return partial

    async def new_passkey_options(self, request: Request) -> Response:
        session = await self._browser.require_recent_session(request)
        await self._browser.check_form(request)
        return _json(await self._passkeys.registration_options(session.user, session.csrf_token))

    async def add_passkey(self, request: Request) -> Response:
        session = await self._browser.require_recent_session(request)
        values = await self._browser.check_form(request)
        await self._add_passkey(request, session.user, session.csrf_token, values)
        return browser.see_other(f"{browser.ACCOUNT_PATH}?done=passkey")

    async def _add_passkey(
        self, request: Request, user: UserRecord, secret: str, values: Mapping[str, str], *, is_first: bool = False
    ) -> None:
        name, origin = values.get("name", "").strip() or "Passkey", self._browser.own_origin(request)
        await self._passkeys.register(user, secret, origin, values.get("credential", ""), name, is_first=is_first)
        self._browser.record(request, "passkey.add", user.id, target=name)

    async def remove_passkey(self, request: Request) -> Response:
        session = await self._browser.require_recent_session(request)
        values = await self._browser.check_form(request)
        await self._passkeys.remove(session.user.id, values.get("passkey", ""))
        self._browser.record(request, "passkey.remove", session.user.id)
        return browser.see_other(f"{browser.ACCOUNT_PATH}?done=passkey-removed")


def _start_path(provider: OpenIdProvider, target: str) -> str:
    return f"{browser.SIGN_IN_PATH}/openid/{provider.id}?next={quote(target, safe='/')}"


def _json(text: str) -> Response:
    """Returns options, which contain a challenge that can be used once."""
    return Response(text, 200, {"Cache-Control": "no-store"}, "application/json")


# -- account -----------------------------------------------------------------------------------------------------------


class AccountPages(PersonalPage):
    done_sentences: ClassVar = {
        "password": N_("Your password is changed."),
        "session": N_("That browser is signed out."),
        "passkey": N_("The passkey is added. You can sign in with it now."),
        "passkey-removed": N_("The passkey is removed."),
        "deleted": N_("Your library is deleted."),
    }

    def __init__(self, runtime: Runtime, services: HttpServices) -> None:
        super().__init__(runtime, services.browser)
        self._accounts = services.accounts
        self._passkeys = services.passkeys

    async def show(self, request: Request) -> Response:
        return await self._page(await self.admit(request, account.get_account))

    async def change_password(self, request: Request) -> Response:
        session = await self._browser.require_session(request)
        values = await self._browser.check_form(request)
        try:
            new_password, address = values.get("new_password", ""), browser.client_address(request)
            if new_password != values.get("repeated"):
                raise InvalidParams("password: the two new passwords differ")
            await self._accounts.change_password(session.user, values.get("password", ""), new_password, address)
        except (SignInFailed, RateLimited, InvalidParams) as error:
            if isinstance(error, SignInFailed):
                # Whoever stole a session may be guessing the password.
                self._browser.record(request, "password.change_failed", session.user.id)
                error = SignInFailed("the current password is wrong")
            return await self._page(await self.admit(request, account.get_account), error)
        self._browser.record(request, "password.change", session.user.id)
        # Changing the password ended all sessions, this one included.
        return await self._browser.sign_in(
            request, session.user, f"{browser.ACCOUNT_PATH}?done=password", method="password"
        )

    async def end_sessions(self, request: Request) -> Response:
        """Ends the session that the form names, or all if it names none."""
        viewer, values = await self.admit_form(request, account.end_browser_sessions)
        if "session" not in values:
            await self.run(viewer, account.end_browser_sessions, NoArguments())
            return await self._browser.sign_out(request)
        sessions: account.BrowserList = await self.run(viewer, account.list_browser_sessions, NoArguments())
        # It may have ended since the page was loaded, which is what the person wanted.
        if values["session"] in {one.id for one in sessions.sessions}:
            ended = account.BrowserSessionRequest(id=values["session"])
            await self.run(viewer, account.end_browser_session, ended)
        return browser.see_other(f"{browser.ACCOUNT_PATH}?done=session")

    async def show_deletion(self, request: Request) -> Response:
        return await self._deletion_page(await self.admit(request, own_data.prepare_deletion))

    async def delete(self, request: Request) -> Response:
        """Deletes the library, or the account with it, if the person typed the name of the account."""
        viewer, values = await self.admit_form(request, own_data.prepare_deletion)
        own = await self._account(viewer)
        is_account = values.get("what") == "account"
        operation = own_data.delete_account if is_account else own_data.delete_data
        try:
            if values.get("name", "").strip() != own.name:
                raise InvalidParams(f"name: type {own.name} to confirm")
            confirmation = own_data.AccountDeletionRequest(
                token=values.get("token", ""), delete_groups=values.get("delete_groups") == "on"
            )
            await self.run(viewer, operation, confirmation)
        except (InvalidParams, Conflict) as error:
            return await self._deletion_page(viewer, error)
        if not is_account:
            return browser.see_other(f"{browser.ACCOUNT_PATH}?done=deleted")
        return await self._browser.sign_out(request, f"{browser.SIGN_IN_PATH}?deleted=yes")

    async def _account(self, viewer: Viewer) -> account.Account:
        own: account.Account = await self.run(viewer, account.get_account, NoArguments())
        return own

    async def _page(self, viewer: Viewer, error: FlorilegiumError | str = "") -> Response:
        settings, session = self._runtime.settings, await self._browser.session_of(viewer.request)
        sessions: account.BrowserList = await self.run(viewer, account.list_browser_sessions, NoArguments())
        passkeys: account.PasskeyList = await self.run(viewer, account.list_passkeys, NoArguments())
        usage: account.UsageResponse = await self.run(viewer, account.get_usage, NoArguments())
        return await self.render(
            viewer,
            "account.html",
            error=error,
            account=await self._account(viewer),
            usage=usage,
            is_local=session is None,
            sessions=sessions.sessions,
            has_password=settings.password_sign_in and await self._accounts.has_password(viewer.context.user_id),
            min_chars=settings.password_min_chars,
            max_chars=PASSWORD_MAX_CHARS,
            has_passkeys=settings.passkey_sign_in and session is not None,
            passkeys=passkeys.passkeys,
            passkey_domain=self._passkeys.rp_id,
            can_add_passkey=session is not None and is_recent(session.created_at),
            has_connections=settings.has_oauth_server and session is not None,
            section="account",
        )

    async def _deletion_page(self, viewer: Viewer, error: FlorilegiumError | str = "") -> Response:
        preview: own_data.DeletionPreview = await self.run(viewer, own_data.prepare_deletion, NoArguments())
        return await self.render(
            viewer,
            "delete-account.html",
            error=error,
            preview=preview,
            account=await self._account(viewer),
            is_local=await self._browser.session_of(viewer.request) is None,
            section="account",
        )


# -- link page ---------------------------------------------------------------------------------------------------------
# The page of a link that creates an account or sets a password.


# The title of each page, what it says, and its button.
_TEXTS: dict[LinkKind, tuple[str, str, str]] = {
    "setup": (
        N_("Set up this server"),
        N_("Create the first account. It can manage this server."),
        N_("Create account"),
    ),
    "invitation": (N_("Create your account"), N_("You are invited to use this server."), N_("Create account")),
    "reset": (N_("Set a new password"), N_("Afterwards you are signed out in all other browsers."), N_("Set password")),
}


class LinkPage:
    def __init__(self, runtime: Runtime, guard: browser.BrowserGuard, accounts: Accounts, kind: LinkKind) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._browser = guard
        self._accounts = accounts
        self._kind: LinkKind = kind

    async def show(self, request: Request) -> Response:
        """Shows the form. Opening a link does not use it: mail scanners and previews open links too."""
        link = await self._accounts.links.find(self._kind, request.path_params["secret"])
        return await self._page(request, link)

    async def use(self, request: Request) -> Response:
        values = await self._browser.check_form(request)
        secret, name, password = request.path_params["secret"], values.get("name", ""), values.get("password", "")
        link = await self._accounts.links.find(self._kind, secret)
        try:
            if password != values.get("repeated"):
                raise InvalidParams("password: the two passwords differ")
            user = await self._accounts.redeem_link(self._kind, secret, name, password)
        except (InvalidParams, Conflict) as error:
            return await self._page(request, link, name, error)
        action = "password.change" if self._kind == "reset" else "user.add"
        self._browser.record(request, action, user.id, target=user.id, detail=user.role)
        if values.get("adopt_local") and self._kind == "setup":
            context = build_context(local_principal(user), self._runtime.data_root, current_request_id())
            try:
                await adopt_local.handler(context, self._runtime, UserRequest(name=user.name))
            except FlorilegiumError as error:
                retry = f"sign in, and run `florilegium user adopt-local {user.name}`"
                problem = f"the account was created, but it did not get the library ({error.message})"
                raise Conflict(f"{problem}; {retry}") from error
        return await self._browser.sign_in(
            request, user, browser.HOME_PATH, method=f"{self._kind} link", is_by_password=True
        )

    async def _page(
        self, request: Request, link: AccountLink, name: str = "", error: FlorilegiumError | str = ""
    ) -> Response:
        title, introduction, button = _TEXTS[self._kind]
        # The first account can take over what the server had before there were accounts.
        adoptable = await find_adoptable(self._runtime) if self._kind == "setup" else None
        return await self._browser.render(
            request,
            "new-password.html",
            adoptable=adoptable.name if adoptable is not None and not self._settings.storage_url else "",
            error=error,
            name=link.name or name[:128],
            is_name_fixed=bool(link.name),
            min_chars=self._settings.password_min_chars,
            max_chars=PASSWORD_MAX_CHARS,
            title=_(title),
            introduction=_(introduction),
            button=_(button),
        )
