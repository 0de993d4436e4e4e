//! What happens around every request: a span with a trace id, CORS, security headers, counting.

use super::{Shared, cors};
use crate::telemetry::request_span;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, web};
use std::time::Instant;
use tracing::Instrument;

/// The middleware.
pub async fn around(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let started = Instant::now();
    let shared = req.app_data::<web::Data<Shared>>().cloned();
    let (span, trace) = request_span(&req);
    let mut response = if req.method() == Method::OPTIONS {
        let answer = cors::options(req.request());
        req.into_response(answer)
    } else {
        match next.call(req).instrument(span.clone()).await {
            Ok(response) => response.map_into_boxed_body(),
            Err(error) => return Err(error),
        }
    };
    cors::allow(response.headers_mut());
    secure(response.headers_mut());
    if let Ok(trace) = HeaderValue::from_str(&trace) {
        response.headers_mut().insert(HeaderName::from_static("traceresponse"), trace);
    }

    let route = response.request().match_pattern();
    let status = response.status().as_u16();
    span.record("http.response.status_code", status);
    if let Some(route) = &route {
        span.record("http.route", route.as_str());
    }
    let took = started.elapsed();
    span.in_scope(|| tracing::debug!(status, took_us = took.as_micros(), "served"));
    if let Some(shared) = shared {
        shared.counters.request(route.as_deref(), status, took);
    }
    Ok(response)
}

fn secure(headers: &mut HeaderMap) {
    headers.insert(header::SERVER, HeaderValue::from_static(concat!("rondo/", env!("CARGO_PKG_VERSION"))));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        // Pages bring their own; nothing else is ever shown as one.
        let none = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.insert(header::CONTENT_SECURITY_POLICY, none);
    }
}
