//! For whoever runs the server: alive, ready, measured.

use super::Shared;
use super::request::{self, Carrier};
use crate::auth::{Act, Caller, Target, allowed};
use crate::error::Fault;
use crate::telemetry::instruments::{self, Format};
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use rondo_actors::api::Refusal;

/// 200 while the process lives.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = String)))]
pub async fn health() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("OK")
}

/// 200 while joins are taken; 503 while the server starts, goes down, or a worker does not answer.
#[utoipa::path(get, path = "/readyz", tag = "operations", responses((status = 200, body = String), (status = 503)))]
pub async fn ready(shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    if shared.node.ready() {
        return Ok(HttpResponse::Ok().content_type("text/plain; charset=utf-8").body("OK"));
    }
    Err(Refusal::Draining.into())
}

/// Metrics: Prometheus text, or OpenMetrics by `Accept`. Open on loopback; elsewhere a token with `rondo.admin`.
#[utoipa::path(
    get, path = "/metrics", tag = "operations", security((), ("token" = [])),
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub async fn metrics(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    if !on_loopback(&req) {
        let caller = request::caller(&shared, &req, Carrier::Header)?;
        allowed(Act::Metrics, &caller, &Target::default())?;
    } else if req.headers().contains_key(header::AUTHORIZATION) {
        // A wrong token is refused everywhere.
        let _: Caller = request::caller(&shared, &req, Carrier::Header)?;
    }
    let accept = req.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Text };
    let tls = shared.tls.as_ref().map(|tls| tls.counts());
    let text = instruments::scrape(&shared.node.counts(), &shared.counters, tls, format).map_err(|error| {
        tracing::error!(%error, "metrics cannot be written");
        Fault::Refused(Refusal::Internal)
    })?;
    Ok(HttpResponse::Ok()
        .content_type(format.content_type())
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(text))
}

/// From this machine and not through a proxy on it.
fn on_loopback(req: &HttpRequest) -> bool {
    let proxied = ["x-forwarded-for", "forwarded", "via"].iter().any(|name| req.headers().contains_key(*name));
    !proxied && req.peer_addr().is_some_and(|addr| addr.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn loopback_is_this_machine_without_a_proxy() {
        let from = |peer: &str| TestRequest::get().peer_addr(peer.parse().unwrap());
        assert!(on_loopback(&from("127.0.0.1:9").to_http_request()));
        assert!(on_loopback(&from("[::1]:9").to_http_request()));
        assert!(on_loopback(&from("[::ffff:127.0.0.1]:9").to_http_request()));
        assert!(!on_loopback(&from("192.0.2.1:9").to_http_request()));
        assert!(!on_loopback(&from("127.0.0.1:9").insert_header(("X-Forwarded-For", "1.2.3.4")).to_http_request()));
        assert!(!on_loopback(&TestRequest::get().to_http_request()));
    }
}
