//! Reading a request: who asks, names in its path, its query, its body.

use super::Shared;
use crate::auth::{Caller, TokenError};
use crate::error::Fault;
use actix_web::http::header;
use actix_web::{HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use rondo_media::ids::{BadName, Identity, RoomName, SessionId, TransportId};
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::time::Duration;

/// Time for a whole body.
const BODY_READ: Duration = Duration::from_secs(10);

/// Items of a list in one answer, where nothing is asked for.
const LIST_DEFAULT: usize = 100;
/// Items of a list in one answer, at most.
const LIST_MAX: usize = 1_000;

/// Where a token may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// `Authorization: Bearer`.
    Header,
    /// The same, or the query `access_token`: streams that a browser opens without headers.
    HeaderOrQuery,
}

/// Who asks. A wrong token is refused in development mode too.
///
/// # Errors
/// `TokenMissing`, `TokenInvalid`.
pub fn caller(shared: &Shared, req: &HttpRequest, carrier: Carrier) -> Result<Caller, Fault> {
    let from_header = match req.headers().get(header::AUTHORIZATION) {
        Some(value) => Some(bearer(value.as_bytes()).ok_or(Fault::TokenInvalid(TokenError::Malformed))?.to_owned()),
        None => None,
    };
    let token = match carrier {
        Carrier::Header => from_header,
        Carrier::HeaderOrQuery => match from_header {
            Some(token) => Some(token),
            None => query::<TokenQuery>(req)?.access_token,
        },
    };
    match token {
        Some(token) => Ok(Caller::Token(Box::new(shared.auth.check(&token)?))),
        None if shared.auth.dev => Ok(Caller::Guest),
        None => Err(Fault::TokenMissing),
    }
}

#[derive(serde::Deserialize)]
struct TokenQuery {
    access_token: Option<String>,
}

/// The token of `Bearer <token>`; the scheme's case does not matter (RFC 9110 §11.1).
fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The room in the path.
///
/// # Errors
/// `BadName`.
pub fn room(req: &HttpRequest) -> Result<RoomName, Fault> {
    name("the room name", req.match_info().get("room").unwrap_or_default())
}

/// The identity in the path, where the path has one.
///
/// # Errors
/// `BadName`.
pub fn identity(req: &HttpRequest) -> Result<Option<Identity>, Fault> {
    req.match_info().get("identity").map(|text| name("the identity", text)).transpose()
}

/// A name, or why not.
///
/// # Errors
/// `BadName`.
pub fn name<T: FromStr<Err = BadName>>(what: &'static str, text: &str) -> Result<T, Fault> {
    text.parse().map_err(|why| Fault::bad_name(what, text, why))
}

/// The transport in the path. An id that cannot be one is simply not there.
///
/// # Errors
/// `NoSuchId`.
pub fn transport(req: &HttpRequest) -> Result<TransportId, Fault> {
    id("transport", req.match_info().get("transport").unwrap_or_default())
}

/// The session in the path.
///
/// # Errors
/// `NoSuchId`.
pub fn session(req: &HttpRequest) -> Result<SessionId, Fault> {
    id("session", req.match_info().get("session").unwrap_or_default())
}

/// The transport by which a caller without a token shows that a session is its own: header `Rondo-Transport`, or the
/// query `transport` where headers cannot be set.
///
/// # Errors
/// `NoSuchId`, `BadQuery`.
pub fn named_transport(req: &HttpRequest) -> Result<Option<TransportId>, Fault> {
    let named = match req.headers().get("Rondo-Transport") {
        Some(value) => Some(value.to_str().unwrap_or_default().to_owned()),
        None => query::<TransportQuery>(req)?.transport,
    };
    named.map(|text| id("transport", text.trim())).transpose()
}

#[derive(serde::Deserialize)]
struct TransportQuery {
    transport: Option<String>,
}

/// How many items of a list are asked for.
///
/// # Errors
/// `BadValue`.
pub fn limit(asked: Option<usize>) -> Result<usize, Fault> {
    match asked {
        None => Ok(LIST_DEFAULT),
        Some(n) if (1..=LIST_MAX).contains(&n) => Ok(n),
        Some(n) => Err(Fault::BadValue(format!("limit is {n}; allowed is 1 to {LIST_MAX}"))),
    }
}

/// The first `limit` items behind `after`, in order of their keys. By key and not by age, so that a reader can go on
/// although the item it stopped at is gone.
pub fn page<T, K: Ord>(mut all: Vec<T>, key: impl Fn(&T) -> &K, after: Option<&K>, limit: usize) -> Vec<T> {
    all.retain(|item| after.is_none_or(|after| key(item) > after));
    all.sort_unstable_by(|a, b| key(a).cmp(key(b)));
    all.truncate(limit);
    all
}

/// An id, or why not.
///
/// # Errors
/// `NoSuchId`.
pub fn id<T: FromStr>(what: &'static str, text: &str) -> Result<T, Fault> {
    text.parse().map_err(|_| Fault::NoSuchId { what, text: text.chars().take(40).collect() })
}

/// The query.
///
/// # Errors
/// `BadQuery`.
pub fn query<T: DeserializeOwned>(req: &HttpRequest) -> Result<T, Fault> {
    // The text of the library's error may hold the value, and the value may be a token: only ours is told.
    web::Query::<T>::from_query(req.query_string())
        .map(web::Query::into_inner)
        .map_err(|error| Fault::BadQuery(query_reason(&error.to_string())))
}

fn query_reason(text: &str) -> String {
    let reason = text.rsplit("error: ").next().unwrap_or_default();
    reason.chars().take(120).collect()
}

/// Refuses a body that is not of this media type. Parameters and case do not matter (RFC 9110 §8.3.1).
///
/// # Errors
/// `MediaType`.
pub fn media_type(req: &HttpRequest, want: &'static str) -> Result<(), Fault> {
    let got = req.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("of no type");
    let essence = got.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(want) {
        return Ok(());
    }
    Err(Fault::MediaType { got: essence.chars().take(80).collect(), want })
}

/// Reads a body of at most `limit` bytes. A larger announced length is refused before anything is read.
///
/// # Errors
/// `BodyTooLarge`, `BodyIncomplete`.
pub async fn body(req: &HttpRequest, payload: &mut web::Payload, limit: usize) -> Result<Bytes, Fault> {
    let announced = req.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|n| n > limit as u64) {
        return Err(Fault::BodyTooLarge { limit });
    }
    let incomplete = || Fault::BodyIncomplete(BODY_READ.as_secs());
    let read = async {
        let mut whole = BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| incomplete())?;
            if whole.len() + chunk.len() > limit {
                return Err(Fault::BodyTooLarge { limit });
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    };
    tokio::time::timeout(BODY_READ, read).await.map_err(|_| incomplete())?
}

/// Reads a JSON body.
///
/// # Errors
/// `MediaType`, `BodyTooLarge`, `BodyIncomplete`, `BadBody`.
pub async fn json<T: DeserializeOwned>(
    shared: &Shared,
    req: &HttpRequest,
    payload: &mut web::Payload,
) -> Result<T, Fault> {
    media_type(req, "application/json")?;
    let body = body(req, payload, shared.body_bytes).await?;
    serde_json::from_slice(&body).map_err(|error| Fault::BadBody(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::FromRequest;
    use actix_web::test::TestRequest;

    #[test]
    fn the_schemes_case_does_not_matter() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("BEARER   abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("abc", None),
            ("", None),
        ] {
            assert_eq!(bearer(value.as_bytes()), token, "{value:?}");
        }
        assert_eq!(bearer(b"Bearer \xff"), None);
    }

    #[test]
    fn a_list_is_read_page_by_page_while_it_changes() {
        let page = |all: &[u32], after: Option<u32>| page(all.to_vec(), |n| n, after.as_ref(), 2);
        assert_eq!(page(&[5, 1, 9, 3], None), [1, 3]);
        // 3 is gone by now, 2 is new.
        assert_eq!(page(&[5, 1, 9, 2], Some(3)), [5, 9]);
        assert!(page(&[5, 1, 9, 2], Some(9)).is_empty());
        assert_eq!((limit(None), limit(Some(1)), limit(Some(1000))), (Ok(100), Ok(1), Ok(1000)));
        for out in [0, 1001, usize::MAX] {
            assert_eq!(limit(Some(out)).unwrap_err().status(), 422, "{out}");
        }
    }

    #[test]
    fn a_transport_is_named_in_the_header_or_the_query() {
        let named = |uri: &str, header: Option<&'static str>| {
            let mut request = TestRequest::with_uri(uri);
            if let Some(value) = header {
                request = request.insert_header(("Rondo-Transport", value));
            }
            named_transport(&request.to_http_request())
        };
        let (a, b) = ("TP_abcdefghijkl", "TP_ABCDEFGHIJKL");
        assert_eq!(named("/x?transport=TP_abcdefghijkl", None), Ok(Some(a.parse().unwrap())));
        assert_eq!(named("/x?transport=TP_abcdefghijkl", Some(b)), Ok(Some(b.parse().unwrap())));
        assert_eq!(named("/x", None), Ok(None));
        for bad in ["", "TP_", "PA_abcdefghijkl", "/transports/TP_abcdefghijkl"] {
            assert_eq!(named("/x", Some(bad)).unwrap_err().code(), "transport_not_found", "{bad}");
        }
    }

    #[test]
    fn media_types_compare_without_parameters_and_case() {
        let check = |value: &str| {
            let req = TestRequest::post().insert_header((header::CONTENT_TYPE, value)).to_http_request();
            media_type(&req, "application/sdp")
        };
        for good in ["application/sdp", "Application/SDP", "application/sdp; charset=utf-8", "application/sdp ;a=b"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["text/plain", "application/sdpx", "", "application/json; application/sdp"] {
            assert_eq!(check(bad).unwrap_err().status(), 415, "{bad}");
        }
        let none = TestRequest::post().to_http_request();
        assert_eq!(media_type(&none, "application/sdp").unwrap_err().status(), 415);
    }

    #[actix_web::test]
    async fn a_body_is_bounded_announced_or_not() {
        let read = |announced: Option<&str>, body: Vec<u8>, limit: usize| {
            let mut request = TestRequest::post().set_payload(body);
            if let Some(n) = announced {
                request = request.insert_header((header::CONTENT_LENGTH, n.to_owned()));
            }
            let (req, mut payload) = request.to_http_parts();
            async move {
                let mut payload = web::Payload::from_request(&req, &mut payload).await.unwrap();
                super::body(&req, &mut payload, limit).await
            }
        };
        assert_eq!(read(None, vec![7; 10], 10).await.unwrap().len(), 10);
        assert_eq!(read(None, vec![7; 11], 10).await, Err(Fault::BodyTooLarge { limit: 10 }));
        assert_eq!(read(Some("2147483647"), vec![7; 1], 10).await, Err(Fault::BodyTooLarge { limit: 10 }));
    }
}
