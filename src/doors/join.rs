//! What WHIP and WHEP have in common: an SDP offer comes, a 201 with an answer goes (RFC 9725 §4.2).

use super::cors::{ACCEPT_PATCH, FRAGMENT, SDP};
use super::{Shared, request};
use crate::error::Fault;
use crate::telemetry::{TraceId, outliving_current};
use actix_web::http::header;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use rondo_actors::api::{Door, Join, Refusal};
use tracing::{Instrument, Span, field, info_span};

/// `GET` and `HEAD` of an endpoint: a 2xx without content (RFC 9725 §4.1).
pub async fn no_content() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// The span that a whole join lives in: `token` and `sdp` here, the rest of its phases where they happen.
pub fn span(door: Door, req: &HttpRequest) -> Span {
    let trace_id = req.extensions().get::<TraceId>().map(|id| id.0.clone());
    outliving_current(info_span!(
        parent: None,
        "join",
        trace_id,
        door = door.label(),
        room = field::Empty,
        identity = field::Empty,
        session = field::Empty,
        transport = field::Empty,
        refused = field::Empty,
    ))
}

/// Reads the offer of a POST.
///
/// # Errors
/// `MediaType`, `BodyTooLarge`, `BodyIncomplete`, `SdpMalformed`.
pub async fn offer(shared: &Shared, req: &HttpRequest, payload: &mut web::Payload) -> Result<String, Fault> {
    let read = async {
        request::media_type(req, SDP)?;
        let body = request::body(req, payload, shared.sdp_bytes).await?;
        if body.is_empty() {
            return Err(Refusal::SdpMalformed("the body is empty".to_owned()).into());
        }
        String::from_utf8(body.to_vec()).map_err(|_| Refusal::SdpMalformed("it is not UTF-8".to_owned()).into())
    };
    read.instrument(info_span!("sdp")).await
}

/// Lets somebody in and answers 201. `Location` is relative: right behind any proxy.
///
/// # Errors
/// What the node refuses.
pub async fn admit(shared: &Shared, join: Join) -> Result<HttpResponse, Fault> {
    let span = Span::current();
    span.record("room", field::display(&join.room));
    span.record("identity", field::display(&join.identity));
    let joined = shared.node.join(join).await?;
    span.record("session", field::display(&joined.session));
    span.record("transport", field::display(&joined.transport));
    Ok(HttpResponse::Created()
        .content_type(SDP)
        .insert_header((header::LOCATION, format!("/transports/{}", joined.transport)))
        .insert_header((header::ETAG, quoted(&joined.etag)))
        .insert_header(("Rondo-Session", joined.session.to_string()))
        .insert_header((ACCEPT_PATCH, FRAGMENT))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(joined.answer))
}

/// Counts and logs a join that was refused.
pub fn refused(shared: &Shared, door: Door, fault: Fault) -> Fault {
    Span::current().record("refused", fault.code());
    tracing::info!(door = door.label(), code = fault.code(), reason = %fault, "join_failed");
    shared.counters.join_refused(door, fault.code());
    fault
}

/// An ETag on the wire (RFC 9110 §8.8.3).
pub fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}
