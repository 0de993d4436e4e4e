//! What is seen from outside: logs, spans, metrics. The only place that names an exporter.

pub mod instruments;
#[cfg(feature = "otlp")]
mod otlp;

use crate::config::{LogFormat, Telemetry as Settings};
use crate::random;
use actix_web::HttpMessage;
use actix_web::dev::ServiceRequest;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tracing::{Span, field, info_span};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

static SHOW_ADDRESSES: AtomicBool = AtomicBool::new(false);

/// Something about a person: written only where `telemetry.log_addresses` says so.
pub struct Pii<T>(pub T);

impl<T: fmt::Display> fmt::Display for Pii<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if SHOW_ADDRESSES.load(Relaxed) { self.0.fmt(f) } else { f.write_str("[hidden]") }
    }
}

/// What must be flushed before the process ends.
#[must_use = "flush it at the end"]
pub struct Telemetry {
    #[cfg(feature = "otlp")]
    traces: Option<otlp::Traces>,
}

/// Sets up logs (standard error) and, where the standard variables name a collector, the export of traces.
/// Once a process; outside any async runtime, because the exporter has threads of its own.
///
/// # Errors
/// A filter that cannot be read, a collector address that cannot be one, or a second call.
pub fn init(settings: &Settings) -> anyhow::Result<Telemetry> {
    instruments::mark_start();
    SHOW_ADDRESSES.store(settings.log_addresses, Relaxed);
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => EnvFilter::try_new(filter)?,
        _ => EnvFilter::try_new(&settings.log_filter)?,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match settings.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let registry = tracing_subscriber::registry().with(lines.with_filter(filter));
    #[cfg(feature = "otlp")]
    {
        let traces = otlp::Traces::from_env()?;
        registry.with(traces.as_ref().map(otlp::Traces::layer)).try_init()?;
        Ok(Telemetry { traces })
    }
    #[cfg(not(feature = "otlp"))]
    {
        registry.try_init()?;
        Ok(Telemetry {})
    }
}

impl Telemetry {
    /// Sends what is still waiting. Blocks for some seconds at most; call it outside any async runtime.
    pub fn flush(self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.flush();
        }
    }
}

/// Trace id of a request, 32 hexadecimal characters; among the request's extensions.
#[derive(Clone)]
pub struct TraceId(pub String);

/// Makes a span that has no parent here a child of the current one in the exported trace. Unlike a true child it does
/// not keep the current span open: a join goes on long after its request was answered.
pub fn outliving_current(span: Span) -> Span {
    #[cfg(feature = "otlp")]
    otlp::follow(&span, &Span::current());
    span
}

/// The span of one HTTP request, and its trace as the answer tells it (`traceresponse`, W3C Trace Context level 2):
/// whoever asks for help can name it. The query is left out of the span: it may hold a token.
pub fn request_span(req: &ServiceRequest) -> (Span, String) {
    let span = info_span!(
        "http_request",
        otel.kind = "server",
        http.request.method = %req.method(),
        url.path = req.path(),
        client.address = field::Empty,
        http.route = field::Empty,
        http.response.status_code = field::Empty,
        trace_id = field::Empty,
    );
    if let Some(peer) = req.peer_addr() {
        span.record("client.address", field::display(Pii(peer.ip())));
    }
    let sent = req.headers().get("traceparent").and_then(|value| Parent::read(value.to_str().ok()?));
    #[cfg(feature = "otlp")]
    let exported = otlp::adopt(&span, sent.as_ref());
    #[cfg(not(feature = "otlp"))]
    let exported: Option<Parent> = None;
    let own = exported.unwrap_or_else(|| Parent {
        trace_id: sent.map_or_else(random::bytes, |parent| parent.trace_id),
        span_id: random::bytes(),
        flags: 0,
    });
    let trace_id = random::hex(&own.trace_id);
    span.record("trace_id", trace_id.as_str());
    let traceresponse = format!("00-{trace_id}-{}-{:02x}", random::hex(&own.span_id), own.flags);
    req.extensions_mut().insert(TraceId(trace_id));
    (span, traceresponse)
}

/// A span of another process, or ours (W3C Trace Context §3.2): `00-{trace id}-{span id}-{flags}` in hexadecimal.
#[derive(Debug, PartialEq, Eq)]
struct Parent {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl Parent {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = unhex::<1>(version)?;
        // Version 00 has exactly four parts; later ones may have more; ff is none.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let parent = Self { trace_id: unhex(trace)?, span_id: unhex(span)?, flags: unhex::<1>(flags)?[0] };
        (parent.trace_id != [0; 16] && parent.span_id != [0; 8]).then_some(parent)
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if text.len() != 2 * N || !lower {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_by_the_rules() {
        // The example of W3C Trace Context §3.2.
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent::read(good).unwrap();
        assert_eq!(random::hex(&parent.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((random::hex(&parent.span_id).as_str(), parent.flags), ("00f067aa0ba902b7", 1));
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Parent::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn personal_things_are_hidden_unless_asked_for() {
        assert_eq!(Pii("192.0.2.1").to_string(), "[hidden]");
    }
}
