//! Everything that can go wrong at a door, in one table: status, stable code, and when to try again.
//!
//! Bodies are `application/problem+json` (RFC 9457). Statuses are those of interfaces §5 only.

use crate::auth::{Denied, TokenError};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use rondo_actors::api::{LeaveReason, Refusal};
use rondo_media::ids::BadName;
use serde::Serialize;

/// A request that was not served.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// A room name or identity that is none.
    #[error("{what} {text:?} {why}")]
    BadName {
        /// `the room name` or `the identity`.
        what: &'static str,
        /// As it was given, cut to a bearable length.
        text: String,
        /// Why.
        why: BadName,
    },
    /// A query that cannot be read.
    #[error("the query cannot be read: {0}")]
    BadQuery(String),
    /// A JSON body that cannot be read.
    #[error("the body cannot be read: {0}")]
    BadBody(String),
    /// A body that can be read, with a value that is not allowed.
    #[error("{0}")]
    BadValue(String),
    /// The body ended early, or did not come in time.
    #[error("the body did not come whole within {0} s")]
    BodyIncomplete(u64),
    /// The body is too large.
    #[error("the body is larger than {limit} bytes, the limit; it was not read")]
    BodyTooLarge {
        /// `limits.sdp_bytes` or `limits.body_bytes`.
        limit: usize,
    },
    /// Wrong media type.
    #[error("the body is {got}; this path takes {want}")]
    MediaType {
        /// As it was given.
        got: String,
        /// What is taken.
        want: &'static str,
    },
    /// No token where one is needed.
    #[error("no access token; send `Authorization: Bearer <token>`")]
    TokenMissing,
    /// A token that is not good.
    #[error("the access token was not taken: {0}")]
    TokenInvalid(TokenError),
    /// The caller may not.
    #[error("not allowed: {0}")]
    Denied(Denied),
    /// Nothing there.
    #[error("there is nothing at {0}")]
    NoSuchPath(String),
    /// An id that this server cannot have given.
    #[error("there is no {what} {text:?}")]
    NoSuchId {
        /// `session`, `transport`, `track`.
        what: &'static str,
        /// As it was given.
        text: String,
    },
    /// Not this method.
    #[error("{method} is not served here; allowed: {allow}")]
    Method {
        /// As it was given.
        method: String,
        /// For `Allow`.
        allow: &'static str,
    },
    /// `If-Match` is missing.
    #[error("a fragment needs If-Match: the newest ETag for more candidates, \"*\" for an ICE restart (RFC 9725 §4.3)")]
    IfMatchMissing,
    /// `If-Match` names another ICE session.
    #[error(
        "If-Match names another ICE session than the one of this transport: send the newest ETag with more candidates, or \"*\" to restart ICE"
    )]
    IfMatchFailed,
    /// The actors refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// One row of the table.
struct Row {
    status: u16,
    code: &'static str,
    title: &'static str,
    retry_after_s: Option<u32>,
}

const fn row(status: u16, code: &'static str, title: &'static str) -> Row {
    Row { status, code, title, retry_after_s: None }
}

const fn later(status: u16, code: &'static str, title: &'static str, s: u32) -> Row {
    Row { status, code, title, retry_after_s: Some(s) }
}

/// Seconds until a bound that people set may have room again.
const FULL_RETRY_S: u32 = 10;
/// Seconds until another server has taken over.
const DRAIN_RETRY_S: u32 = 2;

impl Fault {
    fn row(&self) -> Row {
        match self {
            Fault::BadName { .. } => row(400, "bad_name", "Not a name"),
            Fault::BadQuery(_) => row(400, "bad_query", "Unreadable query"),
            Fault::BadBody(_) => row(400, "bad_body", "Unreadable body"),
            Fault::BodyIncomplete(_) => row(400, "body_incomplete", "Incomplete body"),
            Fault::BadValue(_) => row(422, "bad_value", "A value that is not allowed"),
            Fault::BodyTooLarge { .. } => row(413, "body_too_large", "Body too large"),
            Fault::MediaType { .. } => row(415, "unsupported_media_type", "Unsupported media type"),
            Fault::TokenMissing | Fault::Denied(Denied::NeedsToken(_) | Denied::NeedsTransport(_)) => {
                row(401, "unauthorized", "Access token missing")
            }
            Fault::TokenInvalid(TokenError::Expired) => row(401, "token_expired", "Access token expired"),
            Fault::TokenInvalid(_) => row(401, "unauthorized", "Access token not valid"),
            Fault::Denied(Denied::NotGranted(_)) => row(403, "forbidden", "Not allowed"),
            Fault::Denied(Denied::IdentityMismatch) => row(403, "identity_mismatch", "Another identity"),
            Fault::Denied(Denied::SourceNotAllowed(_)) => row(403, "source_not_allowed", "Source not allowed"),
            Fault::NoSuchPath(_) => row(404, "not_found", "Not found"),
            Fault::NoSuchId { what: "transport", .. } => row(404, "transport_not_found", "Transport not found"),
            Fault::NoSuchId { what: "session", .. } => row(404, "session_not_found", "Session not found"),
            Fault::NoSuchId { .. } => row(404, "not_found", "Not found"),
            Fault::Method { .. } => row(405, "method_not_allowed", "Method not allowed"),
            Fault::IfMatchMissing => row(428, "if_match_missing", "Precondition required"),
            Fault::IfMatchFailed => row(412, "if_match_failed", "Precondition failed"),
            Fault::Refused(refusal) => refused(refusal),
        }
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.row().status
    }

    /// Stable code.
    pub fn code(&self) -> &'static str {
        self.row().code
    }

    /// A name that was refused, as an error.
    pub fn bad_name(what: &'static str, text: &str, why: BadName) -> Self {
        Fault::BadName { what, text: text.chars().take(40).collect(), why }
    }
}

fn refused(refusal: &Refusal) -> Row {
    match refusal {
        Refusal::RoomNotFound(_) => row(404, "room_not_found", "Room not found"),
        Refusal::RoomExists(_) => row(409, "room_exists", "Room exists"),
        Refusal::SessionNotFound(_) => row(404, "session_not_found", "Session not found"),
        Refusal::TrackNotFound(_) => row(404, "track_not_found", "Track not found"),
        Refusal::TransportNotFound(_) => row(404, "transport_not_found", "Transport not found"),
        Refusal::TransportEnded(_, reason) => row(404, ended_code(*reason), "Transport has ended"),
        Refusal::SessionEnded(_, reason) => row(404, ended_code(*reason), "Session has ended"),
        Refusal::RoomFull { .. } => later(429, "room_full", "Room full", FULL_RETRY_S),
        Refusal::TooManyRooms { .. } => later(503, "too_many_rooms", "Too many rooms", FULL_RETRY_S),
        Refusal::TooManyTransports { .. } => later(429, "too_many_transports", "Too many connections", FULL_RETRY_S),
        Refusal::TooManyStreams { .. } => later(429, "too_many_streams", "Too many event streams", FULL_RETRY_S),
        Refusal::ServerFull { retry_after_s } => later(503, "server_full", "Server full", *retry_after_s),
        Refusal::Busy { retry_after_s } => later(503, "busy", "Server busy", *retry_after_s),
        Refusal::Draining => later(503, "draining", "Server shutting down", DRAIN_RETRY_S),
        Refusal::SdpMalformed(_) => row(400, "sdp_malformed", "Unreadable SDP"),
        Refusal::SdpUnsupported(_) => row(406, "sdp_unsupported", "SDP cannot be served"),
        Refusal::NoCommonCodec => row(406, "no_common_codec", "No common codec"),
        Refusal::TooManyRestarts { retry_after_s } => {
            later(429, "too_many_restarts", "Too many ICE restarts", *retry_after_s)
        }
        Refusal::WrongIceSession => row(422, "wrong_ice_session", "Another ICE session"),
        Refusal::Unsupported(_) => row(422, "unsupported", "Not supported"),
        Refusal::Internal => later(503, "internal", "Error inside the server", DRAIN_RETRY_S),
        // The enum may grow in its own crate; an unnamed refusal is our bug until it has its row here.
        _ => later(503, "internal", "Error inside the server", DRAIN_RETRY_S),
    }
}

/// The code of a transport or session that has ended: why. A fault of ours reads `moved`: join again, elsewhere.
fn ended_code(reason: LeaveReason) -> &'static str {
    match reason {
        LeaveReason::ServerError => "moved",
        LeaveReason::ClientLeft
        | LeaveReason::Replaced
        | LeaveReason::JoinTimeout
        | LeaveReason::ConnectionLost
        | LeaveReason::DtlsFailed
        | LeaveReason::Removed
        | LeaveReason::RoomClosed
        | LeaveReason::ServerShutdown => reason.label(),
    }
}

/// Body of an error: `application/problem+json` (RFC 9457).
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// In short, the same for each code.
    #[schema(example = "Not a name")]
    pub title: &'static str,
    /// HTTP status.
    #[schema(example = 400)]
    pub status: u16,
    /// Stable: programs decide by it.
    #[schema(example = "bad_name")]
    pub code: &'static str,
    /// What happened, to what, and what to do.
    pub detail: String,
}

impl From<TokenError> for Fault {
    fn from(error: TokenError) -> Self {
        Fault::TokenInvalid(error)
    }
}

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        Fault::Denied(denied)
    }
}

impl ResponseError for Fault {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.row().status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
    }

    fn error_response(&self) -> HttpResponse {
        let row = self.row();
        let mut response = HttpResponse::build(self.status_code());
        response.content_type("application/problem+json");
        response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
        if let Some(s) = row.retry_after_s {
            response.insert_header((header::RETRY_AFTER, s));
        }
        match self {
            Fault::TokenMissing | Fault::Denied(Denied::NeedsToken(_) | Denied::NeedsTransport(_)) => {
                response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
            }
            Fault::TokenInvalid(_) => {
                response.insert_header((header::WWW_AUTHENTICATE, "Bearer error=\"invalid_token\""));
            }
            Fault::Method { allow, .. } => {
                response.insert_header((header::ALLOW, *allow));
            }
            _ => {}
        }
        if matches!(self, Fault::Refused(Refusal::Internal)) {
            tracing::error!("a request met an error inside the server");
        }
        let detail = sentence(&self.to_string());
        response.json(Problem { title: row.title, status: row.status, code: row.code, detail })
    }
}

/// Begins with a capital and ends with a stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondo_actors::api::Source;

    fn every_fault() -> Vec<(Fault, u16, &'static str)> {
        let room = || "r".parse().unwrap();
        let transport = || "TP_abcdefghijkl".parse().unwrap();
        let ended = |reason| Fault::Refused(Refusal::TransportEnded(transport(), reason));
        let left = |reason| Fault::Refused(Refusal::SessionEnded("PA_abcdefghijkl".parse().unwrap(), reason));
        let mut all = vec![
            (Fault::bad_name("the room name", "a b", BadName::Char(' ')), 400, "bad_name"),
            (Fault::BadQuery("x".into()), 400, "bad_query"),
            (Fault::BadBody("x".into()), 400, "bad_body"),
            (Fault::BodyIncomplete(5), 400, "body_incomplete"),
            (Fault::BadValue("x".into()), 422, "bad_value"),
            (Fault::BodyTooLarge { limit: 1 }, 413, "body_too_large"),
            (Fault::MediaType { got: "text/plain".into(), want: "application/sdp" }, 415, "unsupported_media_type"),
            (Fault::TokenMissing, 401, "unauthorized"),
            (Fault::TokenInvalid(TokenError::Expired), 401, "token_expired"),
            (Fault::TokenInvalid(TokenError::BadSignature), 401, "unauthorized"),
            (Fault::Denied(Denied::NeedsToken("x")), 401, "unauthorized"),
            (Fault::Denied(Denied::NeedsTransport("x")), 401, "unauthorized"),
            (Fault::Denied(Denied::NotGranted("x")), 403, "forbidden"),
            (Fault::Denied(Denied::IdentityMismatch), 403, "identity_mismatch"),
            (Fault::Denied(Denied::SourceNotAllowed(Source::Camera)), 403, "source_not_allowed"),
            (Fault::NoSuchPath("/x".into()), 404, "not_found"),
            (Fault::NoSuchId { what: "transport", text: "x".into() }, 404, "transport_not_found"),
            (Fault::NoSuchId { what: "session", text: "x".into() }, 404, "session_not_found"),
            (Fault::Method { method: "PUT".into(), allow: "GET" }, 405, "method_not_allowed"),
            (Fault::IfMatchMissing, 428, "if_match_missing"),
            (Fault::IfMatchFailed, 412, "if_match_failed"),
            (ended(LeaveReason::Replaced), 404, "replaced"),
            (ended(LeaveReason::JoinTimeout), 404, "join_timeout"),
            (ended(LeaveReason::ServerError), 404, "moved"),
            (left(LeaveReason::ClientLeft), 404, "client_left"),
            (left(LeaveReason::ServerError), 404, "moved"),
        ];
        for (refusal, status, code) in [
            (Refusal::RoomNotFound(room()), 404, "room_not_found"),
            (Refusal::RoomExists(room()), 409, "room_exists"),
            (Refusal::SessionNotFound("PA_abcdefghijkl".parse().unwrap()), 404, "session_not_found"),
            (Refusal::TrackNotFound("TR_abcdefghijkl".parse().unwrap()), 404, "track_not_found"),
            (Refusal::TransportNotFound(transport()), 404, "transport_not_found"),
            (Refusal::RoomFull { room: room(), limit: 5 }, 429, "room_full"),
            (Refusal::TooManyRooms { limit: 5 }, 503, "too_many_rooms"),
            (Refusal::TooManyTransports { limit: 5 }, 429, "too_many_transports"),
            (Refusal::TooManyStreams { limit: 5 }, 429, "too_many_streams"),
            (Refusal::ServerFull { retry_after_s: 7 }, 503, "server_full"),
            (Refusal::Busy { retry_after_s: 7 }, 503, "busy"),
            (Refusal::Draining, 503, "draining"),
            (Refusal::SdpMalformed("x".into()), 400, "sdp_malformed"),
            (Refusal::SdpUnsupported("x".into()), 406, "sdp_unsupported"),
            (Refusal::NoCommonCodec, 406, "no_common_codec"),
            (Refusal::TooManyRestarts { retry_after_s: 7 }, 429, "too_many_restarts"),
            (Refusal::WrongIceSession, 422, "wrong_ice_session"),
            (Refusal::Unsupported("x".into()), 422, "unsupported"),
            (Refusal::Internal, 503, "internal"),
        ] {
            all.push((Fault::Refused(refusal), status, code));
        }
        all
    }

    #[test]
    fn statuses_and_codes_are_stable() {
        for (fault, status, code) in every_fault() {
            assert_eq!((fault.status(), fault.code()), (status, code), "{fault}");
        }
    }

    #[test]
    fn statuses_are_those_of_the_interfaces_and_429_and_503_say_when() {
        const ALLOWED: [u16; 13] = [400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 422, 428, 429];
        for (fault, status, _) in every_fault() {
            assert!(ALLOWED.contains(&status) || status == 503, "{fault}");
            let response = fault.error_response();
            let retry = response.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(retry, status == 429 || status == 503, "{fault}");
            assert_eq!(response.headers().contains_key(header::WWW_AUTHENTICATE), status == 401, "{fault}");
            assert_eq!(response.headers().contains_key(header::ALLOW), status == 405, "{fault}");
            assert_eq!(response.headers().get(header::CONTENT_TYPE).unwrap(), "application/problem+json");
        }
    }

    #[test]
    fn details_are_sentences() {
        assert_eq!(sentence("the body ended"), "The body ended.");
        assert_eq!(sentence("Is it?"), "Is it?");
        assert_eq!(sentence(""), ".");
    }
}
