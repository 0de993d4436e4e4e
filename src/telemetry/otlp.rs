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

/// Makes `span`, which must be new, a child of `parent` in the exported trace.
pub fn follow(span: &Span, parent: &Span) {
    // Fails only where nothing is exported.
    let _ = span.set_parent(parent.context());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::doors::{Shared, app};
    use actix_web::test::{TestRequest, call_service, init_service};
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};
    use rondo_actors::node::Node;
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    /// A collector that keeps what it is sent.
    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    #[actix_web::test]
    async fn a_join_is_one_trace_with_its_phases_under_the_callers_span() {
        let mut config = Config::dev();
        config.media.bind = Ipv4Addr::LOCALHOST.into();
        (config.media.first_port, config.media.workers, config.media.pin) = (0, Some(1), false);
        let (node, _) = Node::start(config.node()).await.unwrap();
        let site = init_service(app(actix_web::web::Data::new(Shared::new(node.clone(), &config, None)))).await;
        let offer = |who: &str| {
            TestRequest::post()
                .uri(&format!("/whip/r/{who}"))
                .insert_header(("Content-Type", "application/sdp"))
                .insert_header(("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
                .set_payload(include_str!("../../tests/cases/http-04/offer.sdp"))
                .to_request()
        };
        // Whoever meets a span first decides, for the whole process, whether anybody listens to it; the threads of other
        // tests would say no. So all spans are met once before the subscriber comes, and a second one beside it makes
        // tracing ask both again.
        assert_eq!(call_service(&site, offer("first")).await.status(), 201);
        let kept = Kept::default();
        let traces = Traces(SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build());
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(traces.layer()));

        let answer = call_service(&site, offer("ann")).await;
        assert_eq!(answer.status(), 201);
        let told = answer.headers().get("traceresponse").unwrap().to_str().unwrap().to_owned();
        let session = answer.headers().get("rondo-session").unwrap().to_str().unwrap().to_owned();
        drop(answer);
        // Milliseconds from the node's being asked to the transport's being attached.
        let attached_ms = node.session(session.parse().unwrap()).await.unwrap().transports[0].phases_ms["sdp"];
        node.stop().await;

        let spans = kept.0.lock().unwrap();
        let named = |name: &str| {
            let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
            spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {names:?}"))
        };
        let (http, join) = (named("http_request"), named("join"));
        assert_eq!(http.parent_span_id.to_string(), "00f067aa0ba902b7");
        let (trace, span) = (http.span_context.trace_id(), http.span_context.span_id());
        assert_eq!(told, format!("00-{trace}-{span}-01"));
        assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(join.parent_span_id, span);
        for phase in ["token", "sdp"] {
            assert_eq!(named(phase).parent_span_id, join.span_context.span_id(), "{phase}");
        }
        let sdp = named("sdp");
        let took = sdp.end_time.duration_since(sdp.start_time).unwrap();
        assert!(
            took.as_millis() >= attached_ms.into(),
            "the offer's way to its answer took {took:?}, {attached_ms} ms"
        );
        for (key, prefix) in [("room", "r"), ("identity", "ann"), ("session", "PA_"), ("transport", "TP_")] {
            let value = join.attributes.iter().find(|kv| kv.key.as_str() == key).unwrap().value.to_string();
            assert!(value.starts_with(prefix), "{key}: {value}");
        }
    }
}
