"""Settings that are valid but weaken a deployment. The server starts, and says so in its log and in `doctor`."""

import ipaddress
import math
from collections import Counter
from collections.abc import Iterator

from config.settings import Settings

# A /8 is the largest private network (RFC 1918), a /7 that of IPv6 (RFC 4193).
_PREFIX_MIN = {4: 8, 6: 7}
# NIST SP 800-131A: keys with less than 112 bits of strength are not acceptable.
_SECRET_MIN_BITS = 112
_COMMON_WORDS = ("changeme", "change-me", "change_me", "example", "password", "qwerty", "secret")


def risks(settings: Settings) -> Iterator[str]:
    for network in settings.trusted_proxies:
        if _is_wide(network):
            yield (
                f"trusted_proxies: {network} covers clients as well as proxies, so anyone can claim any address; "
                "list only the addresses of your proxies"
            )
    for host in settings.allowed_hosts:
        if "*" in host:
            yield f"allowed_hosts: {host} is compared literally and matches no request; list the names that you use"
    for name in ("jwt_secret", "metrics_token"):
        secret = getattr(settings, name)
        if secret and _is_guessable(secret):
            yield f"{name}: the value is easy to guess; create one with `openssl rand -base64 48`"
    if settings.has_jwt_key and settings.jwt_insecure_no_issuer:
        yield "jwt_insecure_no_issuer: tokens of any service that signs with the same key are accepted"
    if settings.has_jwt_key and settings.jwt_insecure_no_audience:
        yield "jwt_insecure_no_audience: tokens that were issued for another service are accepted"


def _is_wide(network: str) -> bool:
    parsed = ipaddress.ip_network(network, strict=False)
    return parsed.prefixlen < _PREFIX_MIN[parsed.version]


def _is_guessable(secret: str) -> bool:
    return estimate_bits(secret) < _SECRET_MIN_BITS or any(word in secret.lower() for word in _COMMON_WORDS)


def estimate_bits(secret: str) -> float:
    """Returns an upper bound of the entropy, from the frequencies of the characters. A repeated text counts once."""
    unit = secret[: (secret + secret).find(secret, 1)]
    counts = Counter(unit)
    return -sum(count * math.log2(count / len(unit)) for count in counts.values())
