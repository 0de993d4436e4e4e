//! Traces to an OpenTelemetry collector (http/protobuf), set by the standard variables alone.

use super::Parent;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// Time for the last spans at exit.
const FLUSH: Duration = Duration::from_secs(3);

/// The export of traces.
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// `None` unless a collector is named and the SDK is not switched off.
    ///
    /// # Errors
    /// An endpoint that is no URL.
    pub fn from_env() -> anyhow::Result<Option<Self>> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let named = set("OTEL_EXPORTER_OTLP_ENDPOINT").or_else(|| set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"));
        let off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value.eq_ignore_ascii_case("none"));
        if named.is_none() || off {
            return Ok(None);
        }
        let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build()?;
        let mut resource = Resource::builder();
        let attributes = set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        if set("OTEL_SERVICE_NAME").is_none() && !attributes.contains("service.name=") {
            resource = resource.with_service_name("rondo");
        }
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
        Ok(Some(Self(provider)))
    }

    /// Where spans go in. Only our own: the exporter's HTTP client must not trace itself.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let ours = ["rondo", "rondo_actors", "rondo_media"].map(|target| (target, Level::INFO));
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("rondo"))
            .with_filter(Targets::new().with_targets(ours))
    }

    /// Sends what waits.
    pub fn flush(self) {
        if let Err(error) = self.0.shutdown_with_timeout(FLUSH) {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

/// Continues the caller's trace, and tells the span that is exported; `None` if nothing is.
pub fn adopt(span: &Span, parent: Option<&Parent>) -> Option<Parent> {
    if let Some(parent) = parent {
        let remote = SpanContext::new(
            TraceId::from_bytes(parent.trace_id),
            SpanId::from_bytes(parent.span_id),
            TraceFlags::new(parent.flags),
            true,
            TraceState::default(),
        );
        // Fails only where nothing is exported.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }
    let context = span.context();
    let own = context.span().span_context().clone();
    own.is_valid().then(|| Parent {
        trace_id: own.trace_id().to_bytes(),
        span_id: own.span_id().to_bytes(),
        flags: own.trace_flags().to_u8(),
    })
}
