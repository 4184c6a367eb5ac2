"""Tokens that must never be accepted, each with a name. They are built from an issuer that the server trusts.

A token with a wrong claim or header has a valid signature, so that it fails only for the reason in its name.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from tests.auth.auth_fixture import ISSUER, NOW, PUBLIC_URL
from tests.auth.issuers import ABSENT, Issuer, b64, compact, eddsa, es256, hmac_signer, hs256, rs256

Attack = tuple[str, str]

AUDIENCE = f"{PUBLIC_URL}/mcp"
REVOKED_JTI = "revoked-token"
REVOKED_WITHOUT_JTI: Mapping[str, Any] = {"client_id": "revoked by hash"}
ORDER_OF_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def attacks(issuer: Issuer) -> list[Attack]:
    """Returns the whole corpus for an issuer."""
    kinds = (
        _no_algorithm,
        _other_algorithms,
        _confused_keys,
        _attacker_keys,
        _broken_signatures,
        _flipped_bits,
        _embedded_keys,
        _rejected_headers,
        _hostile_kids,
        _wrong_times,
        _wrong_audiences,
        _wrong_issuers,
        _wrong_types,
        _wrong_subjects,
        _wrong_other_claims,
        _wrong_segments,
        _wrong_encodings,
        _wrong_json,
        _duplicate_names,
        _withdrawn_access,
        _not_tokens,
    )
    return [attack for kind in kinds for attack in kind(issuer)]


def _unsigned(_message: bytes) -> bytes:
    return b""


def _no_algorithm(issuer: Issuer) -> Iterator[Attack]:
    spellings = ("none", "None", "NONE", "nOnE", "noNe", "NonE", "none ", " none", "none\u0000", "nöne", "")
    for spelling in spellings:
        header = issuer.header(alg=spelling)
        yield f"alg {spelling!r} without a signature", compact(header, issuer.payload(), _unsigned)
        yield f"alg {spelling!r} with a valid signature", compact(header, issuer.payload(), issuer.sign)
    escaped = issuer.header(alg="X").replace(b'"X"', rb'"\u006eone"')
    yield "alg none spelt with an escape", compact(escaped, issuer.payload(), _unsigned)
    for label, value in (("missing", ABSENT), ("null", None), ("a number", 0), ("a list", [issuer.algorithm])):
        yield f"alg {label}", issuer.token({"alg": value})
    yield "alg none with cty", compact(issuer.header(alg="none", cty="JWT"), issuer.payload(), _unsigned)


def _other_algorithms(issuer: Issuer) -> Iterator[Attack]:
    families = ("HS", "RS", "PS", "ES")
    names = [f"{family}{bits}" for family in families for bits in (256, 384, 512)]
    names += ["EdDSA", "Ed25519", "Ed448", "ES256K", "RSA-OAEP", "dir", "A256KW", issuer.algorithm.swapcase()]
    for name in names:
        if name != issuer.algorithm:
            yield f"alg {name} over a valid {issuer.algorithm} signature", issuer.token({"alg": name})


def _confused_keys(issuer: Issuer) -> Iterator[Attack]:
    """Public keys used as shared secrets, which succeed if the token can choose the algorithm."""
    victims = [issuer] if issuer.public else [rs256(), es256(), eddsa()]
    for victim in victims:
        for form, secret in victim.public.items():
            header = issuer.header(alg="HS256")
            yield (
                f"HS256 with the {victim.algorithm} public key as secret, {form}",
                compact(header, issuer.payload(), hmac_signer(secret)),
            )


def _attacker_keys(issuer: Issuer) -> Iterator[Attack]:
    attackers = (hs256(b"another secret, and a long one at that"), rs256("attacker"), es256("attacker"))
    for attacker in (*attackers, eddsa("attacker")):
        for algorithm in sorted({issuer.algorithm, attacker.algorithm}):
            yield (
                f"alg {algorithm}, signed by a attacker's {attacker.algorithm} key",
                compact(issuer.header(alg=algorithm), issuer.payload(), attacker.sign),
            )
    weak = ("", "secret", "password", "changeme", "your-256-bit-secret", "florilegium", "jwt_secret")
    for secret in weak:
        header = issuer.header(alg="HS256")
        token = compact(header, issuer.payload(), hmac_signer(secret.encode()))
        yield f"HS256 with the guessed secret {secret!r}", token


def _broken_signatures(issuer: Issuer) -> Iterator[Attack]:
    head, _, signature = issuer.token().rpartition(".")
    good = issuer.sign(head.encode())
    other = issuer.token(sub="bob").rpartition(".")[2]
    half = len(good) // 2
    broken = {
        "one byte": b"\x00",
        "cut by one byte": good[:-1],
        "longer by one byte": good + b"\x00",
        "led by a zero byte": b"\x00" + good,
        "twice": good + good,
        "all zero": bytes(len(good)),
        "all ones": b"\xff" * len(good),
        "backwards": good[::-1],
        "halves exchanged": good[half:] + good[:half],
        "ten kilobytes": good * (10_000 // len(good)),
        "the message itself": head.encode(),
        "first half zero": bytes(half) + good[half:],
        "second half zero": good[:half] + bytes(half),
    }
    for label, value in broken.items():
        yield f"signature {label}", f"{head}.{b64(value)}"
    yield "signature empty", f"{head}."
    yield "signature of another token", f"{head}.{other}"
    yield "signature as text", f"{head}.signature"
    es_head = ".".join((b64(issuer.header(alg="ES256")), b64(issuer.payload(jti="psychic"))))
    n = ORDER_OF_P256.to_bytes(32, "big")
    for label, value in {"r = s = 0": bytes(64), "r = s = n": n + n, "r = n, s = 0": n + bytes(32)}.items():
        yield f"psychic ES256 signature, {label}", f"{es_head}.{b64(value)}"
    der = b"\x30\x06\x02\x01\x00\x02\x01\x00"
    yield "psychic ES256 signature in DER", f"{es_head}.{b64(der)}"
    yield "signature with padding", f"{head}.{signature}{'=' * (-len(signature) % 4 or 4)}"


def _flipped_bits(issuer: Issuer) -> Iterator[Attack]:
    parts = issuer.token().split(".")
    raw = [bytearray(_unb64(part)) for part in parts]
    for part, label in enumerate(("header", "payload", "signature")):
        for position in (0, 7, len(raw[part]) // 2, len(raw[part]) - 1):
            for bit in (0, 6):
                flipped = [bytes(piece) for piece in raw]
                changed = bytearray(flipped[part])
                changed[position] ^= 1 << bit
                flipped[part] = bytes(changed)
                yield f"bit {bit} of {label} byte {position} flipped", ".".join(b64(piece) for piece in flipped)


def _embedded_keys(issuer: Issuer) -> Iterator[Attack]:
    attackers = (rs256("attacker"), es256("attacker"), eddsa("attacker"))
    for attacker in attackers:
        for kid in (issuer.name, attacker.name, ABSENT):
            where = {
                "jwk": dict(attacker.jwk),
                "jku": "https://evil.example.com/jwks.json",
                "x5u": "https://evil.example.com/cert.pem",
                "x5c": [b64(attacker.public["der"])],
            }
            for name, value in where.items():
                header = issuer.header(alg=attacker.algorithm, kid=kid, **{name: value})
                known = "no kid" if kid is ABSENT else f"kid {kid}"
                yield (
                    f"{attacker.algorithm} key embedded by {name}, {known}",
                    compact(header, issuer.payload(), attacker.sign),
                )
    oct_jwk = {"kty": "oct", "k": b64(b"mine"), "alg": "HS256"}
    header = issuer.header(alg="HS256", jwk=oct_jwk)
    yield "HS256 key embedded by jwk", compact(header, issuer.payload(), hmac_signer(b"mine"))


def _rejected_headers(issuer: Issuer) -> Iterator[Attack]:
    crits: tuple[Any, ...] = (["exp"], ["b64"], [], ["http://evil.example.com/x"], ["alg"], "exp", None, {}, [1])
    for crit in crits:
        yield f"crit {crit!r}", issuer.token({"crit": crit, "exp": NOW})
    yield "crit b64 with b64 false", issuer.token({"crit": ["b64"], "b64": False})
    yield "b64 false", issuer.token({"b64": False})
    yield "b64 true", issuer.token({"b64": True})
    yield "zip header, payload plain", issuer.token({"zip": "DEF"})
    deflated = zlib.compress(issuer.payload())[2:-4]
    yield "zip header, payload deflated", compact(issuer.header(zip="DEF"), deflated, issuer.sign)
    yield "enc header", issuer.token({"enc": "A256GCM"})


def _hostile_kids(issuer: Issuer) -> Iterator[Attack]:
    kids = {
        "a path": "../../../../dev/null",
        "an absolute path": "/dev/null",
        "SQL": "x' UNION SELECT 'key' -- ",
        "a URL": "https://evil.example.com/key",
        "a command": "key.pem|/bin/true",
        "a template": "{{7*7}}",
        "a prototype": "__proto__",
        "another issuer's": "attacker",
    }
    for label, kid in kids.items():
        for secret_label, secret in (("an empty", b""), ("the kid as", kid.encode())):
            header = issuer.header(alg="HS256", kid=kid)
            yield (
                f"kid {label}, HS256 with {secret_label} secret",
                compact(header, issuer.payload(), hmac_signer(secret)),
            )
        yield f"kid {label}, signature empty", compact(issuer.header(kid=kid), issuer.payload(), _unsigned)
    malformed: dict[str, Any] = {
        "with NUL": "\0",
        "with a newline": f"{issuer.name}\n",
        "empty": "",
        "of 10 kB": "k" * 10_000,
        "an integer": 1,
        "a list": [issuer.name],
        "an object": {"kid": issuer.name},
        "true": True,
    }
    for label, value in malformed.items():
        yield f"kid {label}, valid signature", issuer.token({"kid": value})


def _wrong_times(issuer: Issuer) -> Iterator[Attack]:
    late = NOW + 3600
    expiries: dict[str, Any] = {
        "missing": ABSENT,
        "null": None,
        "a minute ago": NOW - 60,
        "just outside the leeway": NOW - 30,
        "years ago": 1,
        "zero": 0,
        "negative": -late,
        "text": str(late),
        "ISO text": "2099-01-01T00:00:00Z",
        "empty text": "",
        "a list": [late],
        "an object": {"exp": late},
        "true": True,
        "false": False,
        "in milliseconds": late * 1000,
        "far in the future": 1e20,
        "of 64 bits": 2**64,
        "of 400 digits": int("9" * 400),
    }
    for label, value in expiries.items():
        yield f"exp {label}", issuer.token(exp=value)
    for literal in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "0x7fffffff", "1_900_000_000", "+1900000000"):
        payload = issuer.payload(exp="X").replace(b'"X"', literal.encode())
        yield f"exp written {literal}", compact(issuer.header(), payload, issuer.sign)
    starts: dict[str, Any] = {
        "in an hour": late,
        "just outside the leeway": NOW + 31,
        "text": str(NOW),
        "null": None,
        "true": True,
        "negative": -1,
        "a list": [NOW],
        "in milliseconds": NOW * 1000,
    }
    for claim in ("nbf", "iat"):
        for label, value in starts.items():
            yield f"{claim} {label}", issuer.token(**{claim: value})


def _wrong_audiences(issuer: Issuer) -> Iterator[Attack]:
    audiences: dict[str, Any] = {
        "missing": ABSENT,
        "null": None,
        "empty": "",
        "an empty list": [],
        "another server": "https://other.example.com/mcp",
        "a list of others": ["https://other.example.com/mcp", "account"],
        "the base URL only": PUBLIC_URL,
        "a longer path": AUDIENCE + "/admin",
        "with a slash at the end": AUDIENCE + "/",
        "with a query": AUDIENCE + "?x=1",
        "in capitals": AUDIENCE.upper(),
        "over plain http": AUDIENCE.replace("https", "http"),
        "with a space": AUDIENCE + " ",
        "ours among others in one text": f"other {AUDIENCE}",
        "ours in a list with a number": [AUDIENCE, 1],
        "ours in a nested list": [[AUDIENCE]],
        "an object": {AUDIENCE: True},
        "a number": 1,
        "true": True,
        "a look-alike": AUDIENCE.replace("e", "\u0435", 1),
        "the issuer's own": f"{issuer.iss}/token",
        "a wildcard": "*",
    }
    for label, value in audiences.items():
        yield f"aud {label}", issuer.token(aud=value)


def _wrong_issuers(issuer: Issuer) -> Iterator[Attack]:
    issuers: dict[str, Any] = {
        "missing": ABSENT,
        "null": None,
        "empty": "",
        "another": "https://evil.example.com",
        "another tenant's": ISSUER.replace("main", "other"),
        "with a slash at the end": issuer.iss + "/",
        "in capitals": issuer.iss.upper(),
        "cut short": issuer.iss[:-1],
        "longer": issuer.iss + ".evil.example.com",
        "in a list": [issuer.iss],
        "an object": {"iss": issuer.iss},
        "a number": 1,
        "with a newline": issuer.iss + "\n",
    }
    for label, value in issuers.items():
        yield f"iss {label}", issuer.token(iss=value)


def _wrong_types(issuer: Issuer) -> Iterator[Attack]:
    types: tuple[Any, ...] = (
        ABSENT,
        None,
        "",
        "id+jwt",
        "dpop+jwt",
        "logout+jwt",
        "refresh+jwt",
        "Refresh",
        "ID",
        "secevent+jwt",
        "application/id+jwt",
        "application/",
        "text/at+jwt",
        "at+jwt; charset=utf-8",
        "JWS",
        "JWE",
        "at+jwt\n",
        1,
        ["at+jwt"],
        {"typ": "at+jwt"},
        True,
    )
    for value in types:
        label = "missing" if value is ABSENT else repr(value)
        yield f"typ {label}", issuer.token({"typ": value})


def _wrong_subjects(issuer: Issuer) -> Iterator[Attack]:
    subjects: dict[str, Any] = {
        "missing": ABSENT,
        "null": None,
        "empty": "",
        "a number": 1,
        "a list": ["alice"],
        "an object": {"name": "alice"},
        "true": True,
        "with NUL": "alice\0",
        "with a newline": "alice\n",
        "with an escape character": "\x1b[2Jalice",
        "with a direction mark": "\u202ealice",
        "with a zero-width space": "alice\u200b",
        "a lone surrogate": "\ud800",
        "too long": "a" * 256,
        "unknown": "mallory",
        "in capitals": "ALICE",
        "with a space": "alice ",
        "a look-alike": "\u0430lice",
        "a path": "../alice",
        "a wildcard": "%",
        "SQL": "alice' OR '1'='1",
    }
    for label, value in subjects.items():
        yield f"sub {label}", issuer.token(sub=value)


def _wrong_other_claims(issuer: Issuer) -> Iterator[Attack]:
    for label, value in {"empty": "", "a number": 1, "a list": ["reader"], "with NUL": "\0", "null": None}.items():
        yield f"client_id {label}", issuer.token(client_id=value)
        yield f"azp {label}", issuer.token(client_id=ABSENT, azp=value)
        yield f"jti {label}", issuer.token(jti=value)
    yield "jti too long", issuer.token(jti="j" * 256)
    scopes: tuple[Any, ...] = (1, True, None, {"knowledge:read": True}, ["knowledge:read", 1])
    for scope in scopes:
        yield f"scope {scope!r}", issuer.token(scope=scope)


def _wrong_segments(issuer: Issuer) -> Iterator[Attack]:
    good = issuer.token()
    header, payload, signature = good.split(".")
    yield "no dot", good.replace(".", "")
    yield "one dot", f"{header}.{payload}"
    yield "two dots, nothing else", ".."
    yield "four parts", f"{good}.{signature}"
    yield "five parts, as a JWE has", f"{good}.{signature}.{signature}"
    yield (
        "a JWE header with five parts",
        f"{b64(issuer.header(alg='dir', enc='A256GCM'))}..{payload}.{payload}.{signature}",
    )
    yield "a dot at the end", f"{good}."
    yield "a dot in front", f".{good}"
    yield "header empty", f".{payload}.{signature}"
    yield "payload empty", f"{header}..{signature}"
    yield "header and payload exchanged", f"{payload}.{header}.{signature}"
    yield "two tokens", f"{good},{good}"
    yield "two tokens with a space", f"{good} {issuer.token(sub='bob')}"
    yield "a nested token", compact(issuer.header(cty="JWT"), good.encode(), issuer.sign)
    yield "a nested token as text", compact(issuer.header(), json.dumps(good).encode(), issuer.sign)
    yield "JSON serialization", json.dumps({"protected": header, "payload": payload, "signature": signature})
    yield "over the length limit", issuer.token(pad="x" * 20_000)


def _wrong_encodings(issuer: Issuer) -> Iterator[Attack]:
    good = issuer.token()
    header, payload, signature = good.split(".")
    yield "a space inside", f"{header}. {payload}.{signature}"
    yield "a newline inside", f"{header}.{payload[:4]}\n{payload[4:]}.{signature}"
    yield "a newline at the end", f"{good}\n"
    yield "a carriage return at the end", f"{good}\r\n"
    yield "NUL at the end", f"{good}\0"
    yield "header with padding", f"{header}=.{payload}.{signature}"
    yield "payload with padding", f"{header}.{payload}==.{signature}"
    yield "a character of plain base64", f"{header}.{payload}.+{signature[1:]}"
    yield "a slash of plain base64", f"{header}.{payload}./{signature[1:]}"
    yield "percent encoding", f"{header}%2E{payload}%2E{signature}"
    yield "not ASCII", f"{header}.{payload}.\u00e9{signature[1:]}"
    yield "full-width dots", f"{header}\uff0e{payload}\uff0e{signature}"
    yield "in quotes", f'"{good}"'
    yield "part of impossible length", f"{header}.{payload}.{signature[: len(signature) // 4 * 4]}A"
    yield "unused bits of the signature set", f"{header}.{payload}.{_with_unused_bits(signature)}"
    for name, text in (("UTF-16", "utf-16"), ("UTF-32", "utf-32"), ("UTF-8 with a mark", "utf-8-sig")):
        yield f"header in {name}", compact(_reencoded(issuer.header(), text), issuer.payload(), issuer.sign)
        yield f"payload in {name}", compact(issuer.header(), _reencoded(issuer.payload(), text), issuer.sign)
    yield "header not UTF-8", compact(issuer.header(x="X").replace(b"X", b"\xff"), issuer.payload(), issuer.sign)
    yield "payload not UTF-8", compact(issuer.header(), issuer.payload(x="X").replace(b"X", b"\xc0\x80"), issuer.sign)


def _wrong_json(issuer: Issuer) -> Iterator[Attack]:
    values = ("[]", '"text"', "1", "null", "true", "", "{", "{}", "not json", "[" * 3000, '{"a":' * 3000)
    for value in values:
        label = value if len(value) < 20 else f"{value[:5]} nested deep"
        yield f"header {label!r}", compact(value.encode(), issuer.payload(), issuer.sign)
        yield f"payload {label!r}", compact(issuer.header(), value.encode(), issuer.sign)
    yield "header in a list", compact(b"[" + issuer.header() + b"]", issuer.payload(), issuer.sign)
    yield "payload in a list", compact(issuer.header(), b"[" + issuer.payload() + b"]", issuer.sign)
    yield "payload with single quotes", compact(issuer.header(), issuer.payload().replace(b'"', b"'"), issuer.sign)
    yield "payload followed by another", compact(issuer.header(), issuer.payload() * 2, issuer.sign)
    yield "payload with a comment", compact(issuer.header(), issuer.payload() + b"// admin", issuer.sign)
    yield "payload with a comma too many", compact(issuer.header(), issuer.payload()[:-1] + b",}", issuer.sign)


def _duplicate_names(issuer: Issuer) -> Iterator[Attack]:
    """The malicious value is first or second, so that neither kind of lenient parser is fooled."""
    malicious = {
        "sub": '"bob"',
        "exp": "9999999999",
        "aud": '"x"',
        "scope": '"admin"',
        "iss": '"x"',
        "jti": '"a","jti":"b"',
    }
    for claim, value in malicious.items():
        second = f'"{claim}":{value}'.encode()
        payload = issuer.payload(jti="original")
        yield (
            f"{claim} twice, malicious second",
            compact(issuer.header(), payload[:-1] + b"," + second + b"}", issuer.sign),
        )
        yield (
            f"{claim} twice, malicious first",
            compact(issuer.header(), b"{" + second + b"," + payload[1:], issuer.sign),
        )
    nested = issuer.payload(x="X").replace(b'"X"', b'{"a":1,"a":2}')
    yield "a name twice in a nested object", compact(issuer.header(), nested, issuer.sign)
    for name, text in {"alg": '"none"', "typ": '"id+jwt"', "kid": '"x"'}.items():
        second = f'"{name}":{text}'.encode()
        header = issuer.header()[:-1] + b"," + second + b"}"
        yield f"{name} twice in the header, malicious second", compact(header, issuer.payload(), issuer.sign)
        header = b"{" + second + b"," + issuer.header()[1:]
        yield f"{name} twice in the header, malicious first", compact(header, issuer.payload(), issuer.sign)


def _withdrawn_access(issuer: Issuer) -> Iterator[Attack]:
    """Valid tokens whose user or token was withdrawn in the test's registry."""
    yield "revoked by jti", issuer.token(jti=REVOKED_JTI)
    yield "revoked by hash", issuer.token(**REVOKED_WITHOUT_JTI)
    yield "of a disabled user", issuer.token(sub="disabled")
    yield "of a deleted user", issuer.token(sub="deleted")
    yield "issued before the user was disabled and enabled", issuer.token(sub="returned")
    yield "without iat, of a user once disabled", issuer.token(sub="returned", iat=ABSENT)


def _not_tokens(_issuer: Issuer) -> Iterator[Attack]:
    yield "an unknown API key", "flo_" + "A" * 43
    yield "an API key too short", "flo_" + "A" * 42
    yield "an API key too long", "flo_" + "A" * 44
    yield "an API key of other characters", "flo_" + "!" * 43
    yield "an API key with a newline", "flo_" + "A" * 43 + "\n"
    yield "only the prefix of an API key", "flo_"
    yield "a token behind the prefix of an API key", f"flo_{_issuer.token()}"
    yield "an API key in other case", "FLO_" + "A" * 43
    yield "an unknown OAuth access token", "floa_" + "A" * 43
    yield "an OAuth access token too short", "floa_" + "A" * 42
    yield "an OAuth access token of other characters", "floa_" + "!" * 43
    yield "a token behind the prefix of an OAuth access token", f"floa_{_issuer.token()}"
    yield "an OAuth refresh token", "flor_" + "A" * 43
    yield "an OAuth code", "floc_" + "A" * 43
    yield "an OAuth client secret", "flos_" + "A" * 43
    yield "the word null", "null"
    yield "the word undefined", "undefined"
    yield "a placeholder", "${TOKEN}"
    yield "a single dot", "."
    yield "SQL", "' OR 1=1 --"
    yield "a megabyte", "A" * 1_000_000


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _reencoded(data: bytes, encoding: str) -> bytes:
    return data.decode().encode(encoding)


def _with_unused_bits(part: str) -> str:
    """Encodes the same bytes differently, with unused low bits of the last character set."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return part[:-1] + alphabet[alphabet.index(part[-1]) | 1]
