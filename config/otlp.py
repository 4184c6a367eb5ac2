"""Sends spans to an OpenTelemetry collector over OTLP/HTTP. Needs the extra `tracing`; see `config.tracing`."""

from collections.abc import Mapping

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from config.tracing import Attributes, Span, SpanKind

_KINDS = {"internal": trace.SpanKind.INTERNAL, "server": trace.SpanKind.SERVER}
_EXPORT_TIMEOUT_S = 10.0
_PROPAGATOR = TraceContextTextMapPropagator()


class OtlpTracer:
    """Sends spans in batches from a thread of its own. If the collector does not take them, the oldest are dropped.

    The variables OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and OTEL_EXPORTER_OTLP_HEADERS apply.
    """

    def __init__(self, endpoint: str, sample_ratio: float, version: str) -> None:
        resource = Resource({"service.name": "florilegium", "service.version": version})
        self._provider = TracerProvider(
            sampler=ParentBasedTraceIdRatio(sample_ratio),
            resource=resource.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("florilegium", version)

    def start(self, name: str, kind: SpanKind, attributes: Attributes, parent: Mapping[str, str] | None) -> Span:
        here = context.get_current()
        remote = _PROPAGATOR.extract(parent, here) if parent else here
        links = []
        current = trace.get_current_span(here).get_span_context()
        if remote is not here and current.is_valid:
            # The call is part of the client's trace, and the request that carried it is a span of its own.
            links.append(trace.Link(current))
        started = self._tracer.start_span(name, remote, _KINDS[kind], attributes, links)
        return _RecordedSpan(started)

    def close(self) -> None:
        self._provider.shutdown()


class _RecordedSpan(Span):
    def __init__(self, started: trace.Span) -> None:
        self._span = started
        self.trace_id = trace.format_trace_id(started.get_span_context().trace_id)

    def __enter__(self) -> "_RecordedSpan":
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        context.detach(self._token)
        if kind is not None:
            self._span.set_attribute("error.type", kind.__name__)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()

    def update(self, attributes: Attributes, *, name: str = "", is_failed: bool = False) -> None:
        self._span.set_attributes(attributes)
        if name:
            self._span.update_name(name)
        if is_failed:
            self._span.set_status(trace.StatusCode.ERROR)
