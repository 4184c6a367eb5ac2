"""Spans of OpenTelemetry traces: a request, a call, the search of a source, a read or write of a library.

Without `tracing_endpoint` nothing is imported, and a span costs one comparison. Spans have names, ids and times, never
arguments, results or error messages.
"""

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal, Protocol, Self

from config.errors import ConfigurationError
from config.settings import Settings

Attributes = Mapping[str, str | int | float | bool]
SpanKind = Literal["internal", "server"]

# How long the last spans may take to be sent when the server stops.
_FLUSH_S = 2.0


class Span:
    """A span that is not recorded, for the duration of a `with` block. `trace_id` is empty."""

    trace_id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        """Marks the span as failed if the block raised, by the name of the exception only."""

    def update(self, attributes: Attributes, *, name: str = "", is_failed: bool = False) -> None:
        """Adds what became known during the span."""


class Tracer(Protocol):
    """Starts spans and sends them to a collector. `parent` has the headers of W3C Trace Context."""

    def start(self, name: str, kind: SpanKind, attributes: Attributes, parent: Mapping[str, str] | None) -> Span: ...

    def close(self) -> None: ...


class _Tracing:
    """The tracer of this process, if any."""

    tracer: Tracer | None = None


_tracing = _Tracing()
# What `span` returns without a tracer.
NO_SPAN = Span()
_NO_ATTRIBUTES: Attributes = {}


def is_tracing() -> bool:
    return _tracing.tracer is not None


def span(
    name: str,
    attributes: Attributes = _NO_ATTRIBUTES,
    *,
    kind: SpanKind = "internal",
    parent: Mapping[str, str] | None = None,
) -> Span:
    """Returns a span below the current one, or below the caller's if `parent` has a valid `traceparent`."""
    if _tracing.tracer is None:
        return NO_SPAN
    return _tracing.tracer.start(name, kind, attributes, parent)


@asynccontextmanager
async def tracing(settings: Settings, version: str) -> AsyncIterator[None]:
    """Sends spans to the collector for the duration of the block, if one is configured."""
    if not settings.tracing_endpoint:
        yield
        return
    try:
        otlp = importlib.import_module("config.otlp")
    except ImportError as error:
        raise ConfigurationError(
            "tracing_endpoint: OpenTelemetry is not installed; install the extra tracing of florilegium"
        ) from error
    tracer: Tracer = otlp.OtlpTracer(settings.tracing_endpoint, settings.tracing_sample_ratio, version)
    before, _tracing.tracer = _tracing.tracer, tracer
    try:
        yield
    finally:
        _tracing.tracer = before
        # A daemon, because a collector that does not answer must not keep the process alive.
        closing = threading.Thread(target=tracer.close, name="tracing", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _FLUSH_S)
