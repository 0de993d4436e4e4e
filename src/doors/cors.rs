//! Any page of any origin may use the API (Fetch standard, CORS protocol): tokens are in headers, never in cookies.

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// What scripts of other origins may read.
const EXPOSED: &str =
    "Location, ETag, Link, Rondo-Session, Retry-After, Accept-Patch, Accept-Post, WWW-Authenticate, traceresponse";
const METHODS: &str = "GET, HEAD, POST, PATCH, DELETE, OPTIONS";
/// Asked for by our own pages; others are allowed as they are asked for.
const HEADERS: &str =
    "Authorization, Content-Type, If-Match, If-None-Match, Last-Event-ID, Accept, Rondo-Transport, traceparent";
/// One day.
const PREFLIGHT_CACHE_S: &str = "86400";

/// Media type of offers and answers.
pub const SDP: &str = "application/sdp";
/// Media type of trickle fragments (RFC 8840).
pub const FRAGMENT: &str = "application/trickle-ice-sdpfrag";
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
/// `Accept-Patch` (RFC 5789).
pub const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");

/// Answers `OPTIONS`, preflight or not, without a token (RFC 9725 §4.5).
pub fn options(req: &HttpRequest) -> HttpResponse {
    let mut response = HttpResponse::NoContent();
    response.insert_header((header::ACCESS_CONTROL_ALLOW_METHODS, METHODS));
    let asked = req.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let headers = asked.unwrap_or(HeaderValue::from_static(HEADERS));
    response.insert_header((header::ACCESS_CONTROL_ALLOW_HEADERS, headers));
    response.insert_header((header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_CACHE_S));
    response.insert_header((header::VARY, "Access-Control-Request-Headers"));
    if req.path().starts_with("/whip/") || req.path().starts_with("/whep/") {
        response.insert_header((ACCEPT_POST, SDP));
    }
    if req.path().starts_with("/transports/") {
        response.insert_header((ACCEPT_PATCH, FRAGMENT));
    }
    response.finish()
}

/// On every answer, refusals included: a page must be able to read why.
pub fn allow(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
}
