//! What WHIP and WHEP have in common: an SDP offer comes, a 201 with an answer goes (RFC 9725 §4.2).

use super::cors::{ACCEPT_PATCH, FRAGMENT, SDP};
use super::{Shared, request};
use crate::error::Fault;
use crate::telemetry::{TraceId, outliving_current};
use actix_web::http::header;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use rondo_actors::api::{Door, Join, Refusal};
use std::future::Future;
use tracing::{Instrument, Span, field, info_span};

/// `GET` and `HEAD` of an endpoint: a 2xx without content (RFC 9725 §4.1).
pub async fn no_content() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// The span that a whole join lives in: `token` and `sdp` here, the rest of its phases where they happen.
fn span(door: Door, req: &HttpRequest) -> Span {
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

/// The phase `sdp` of a join: from the first byte of the offer to the answer.
///
/// It is held and never entered: the phases that follow it are children of the join, not of it.
pub struct SdpPhase(Span);

impl SdpPhase {
    fn begin() -> Self {
        Self(info_span!("sdp"))
    }
}

/// Serves one offer: `checked` is everything before the node is asked.
///
/// # Errors
/// What was found wrong, what the node refuses; counted and logged.
pub async fn serve(
    shared: &Shared,
    door: Door,
    req: &HttpRequest,
    checked: impl Future<Output = Result<(Join, SdpPhase), Fault>>,
) -> Result<HttpResponse, Fault> {
    let join = async {
        match checked.await {
            Ok((join, sdp)) => admit(shared, join, sdp).await,
            Err(fault) => Err(fault),
        }
        .map_err(|fault| refused(shared, door, fault))
    };
    join.instrument(span(door, req)).await
}

/// Reads the offer of a POST; the phase lasts until it is dropped.
///
/// # Errors
/// `MediaType`, `BodyTooLarge`, `BodyIncomplete`, `SdpMalformed`.
pub async fn offer(
    shared: &Shared,
    req: &HttpRequest,
    payload: &mut web::Payload,
) -> Result<(String, SdpPhase), Fault> {
    let phase = SdpPhase::begin();
    request::media_type(req, SDP)?;
    let body = request::body(req, payload, shared.sdp_bytes).await?;
    if body.is_empty() {
        return Err(Refusal::SdpMalformed("the body is empty".to_owned()).into());
    }
    let offer = String::from_utf8(body.to_vec()).map_err(|_| Refusal::SdpMalformed("it is not UTF-8".to_owned()))?;
    Ok((offer, phase))
}

/// Lets somebody in and answers 201. `Location` is relative: right behind any proxy.
async fn admit(shared: &Shared, join: Join, sdp: SdpPhase) -> Result<HttpResponse, Fault> {
    let span = Span::current();
    span.record("room", field::display(&join.room));
    span.record("identity", field::display(&join.identity));
    // The current span becomes the parent of the phases to come.
    let joined = shared.node.join(join).await?;
    drop(sdp.0);
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
fn refused(shared: &Shared, door: Door, fault: Fault) -> Fault {
    Span::current().record("refused", fault.code());
    tracing::info!(door = door.label(), code = fault.code(), reason = %fault, "join_failed");
    shared.counters.join_refused(door, fault.code());
    fault
}

/// An ETag on the wire (RFC 9110 §8.8.3).
pub fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}
