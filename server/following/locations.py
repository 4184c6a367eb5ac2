"""Which paths and URLs a user may follow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from auth.follows import FollowRecord
from config.errors import Conflict, InvalidParams
from config.settings import Settings
from sources.following.scan import SourceMissing

_URL_PREFIXES = ("http://", "https://")
_LOCATION_MAX_CHARS = 4096
_CONFINED = (
    "location: expected a path in one of the folders that follow_roots names, got another one; "
    "an administrator may follow any path"
)


class AllowedLocation(Struct, frozen=True):
    """`is_confined`: the user may follow it only because of the setting `follow_roots`."""

    text: str
    is_confined: bool


def allowed_location(
    settings: Settings,
    location: str,
    user_name: str,
    *,
    is_administrator: bool,
    writes_back: bool,
    others: Sequence[FollowRecord],
) -> AllowedLocation:
    """Returns the location in the form in which it is stored. `others` are those that the user already follows."""
    if not location or len(location) > _LOCATION_MAX_CHARS or "\0" in location:
        raise InvalidParams(f"location: expected a path or URL of 1 to {_LOCATION_MAX_CHARS} characters")
    if location.lower().startswith(_URL_PREFIXES):
        if writes_back:
            raise InvalidParams("write_back: expected a folder, got a URL")
        return AllowedLocation(_checked_url(location), is_confined=not is_administrator)
    path = Path(location)
    if not path.is_absolute():
        raise InvalidParams(f"location: expected an absolute path or an http(s) URL, got {location[:200]!r}")
    resolved = path.resolve()
    if not is_administrator and not is_in_follow_roots(settings, resolved, user_name):
        # Before anything else: whether a path exists is nothing that a user without access to it should learn.
        raise InvalidParams(_CONFINED)
    if not resolved.is_file() and not resolved.is_dir():
        raise InvalidParams(f"location: expected an existing file or folder, got {location[:200]!r}")
    if writes_back and not resolved.is_dir():
        raise InvalidParams("write_back: expected a folder, got a file")
    require_outside_data(settings, resolved)
    _require_apart(resolved, others)
    return AllowedLocation(str(resolved), is_confined=not is_administrator)


def allowed_deployment(settings: Settings, location: str) -> str:
    """Returns the folder of a deployment in the form in which it is stored."""
    path = Path(location)
    if "\0" in location or not path.is_absolute() or not path.is_dir():
        raise InvalidParams(f"location: expected the absolute path of an existing folder, got {location[:200]!r}")
    resolved = path.resolve()
    require_outside_data(settings, resolved)
    return str(resolved)


def checked_path(settings: Settings, record: FollowRecord, user_name: str) -> Path:
    """Returns the path to read now. A link may lead elsewhere by now, and the settings may have changed."""
    resolved = Path(record.location).resolve()
    if record.deployment is not None and str(resolved) != record.location:
        raise SourceMissing("the folder was replaced by a link to another one")
    if record.is_confined and not is_in_follow_roots(settings, resolved, user_name):
        raise SourceMissing("follow_roots no longer permits this path")
    require_outside_data(settings, resolved)
    return resolved


def is_in_follow_roots(settings: Settings, path: Path, user_name: str) -> bool:
    return any(path.is_relative_to(root) for root in _roots(settings, user_name))


def require_outside_data(settings: Settings, path: Path) -> None:
    """The files of this server are not a source: every import would change them."""
    data = Path(settings.data_dir).resolve()
    if path.is_relative_to(data) or data.is_relative_to(path):
        raise InvalidParams("location: expected a path outside the data directory that does not contain it")


def _roots(settings: Settings, user_name: str) -> Iterator[Path]:
    is_plain_name = user_name not in ("", ".", "..") and "/" not in user_name and "\0" not in user_name
    for root in settings.follow_roots:
        if "{user}" not in root:
            yield Path(root).resolve()
        elif is_plain_name:
            yield Path(root.replace("{user}", user_name)).resolve()


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidParams(f"location: expected an http(s) URL, got {url[:200]!r}") from None
    if not parts.hostname or "@" in parts.netloc:
        raise InvalidParams("location: expected a URL with a host and without a password")
    return parts._replace(scheme=parts.scheme.lower(), fragment="").geturl()


def _require_apart(path: Path, others: Sequence[FollowRecord]) -> None:
    """Two followed sources with the same files would store every item twice."""
    for other in others:
        if not other.is_url and (path.is_relative_to(other.location) or Path(other.location).is_relative_to(path)):
            raise Conflict(f"{path} overlaps with {other.location}, which is already followed ({other.id})")
