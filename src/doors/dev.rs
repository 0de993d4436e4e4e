//! Development mode hands pages a token, so that they take the true token path everywhere.

use super::Shared;
use super::request;
use crate::auth::{Claims, VideoClaim, unix_s};
use crate::error::{Fault, Problem};
use crate::random;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use rondo_media::ids::{Identity, RoomName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A token of a page lives this long, in seconds.
const TTL_S: u64 = 6 * 3600;

/// Body of `POST /api/v1/dev/token`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The room.
    room: String,
    /// Who; `guest-xxxxxx` if left out.
    identity: Option<String>,
    /// Name to show.
    name: Option<String>,
}

/// A token that joins, publishes and plays one room.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenAnswer {
    /// For `Authorization: Bearer`.
    token: String,
    /// Its room.
    room: String,
    /// Its identity.
    identity: String,
    /// Seconds since 1970.
    expires_at_s: u64,
}

/// A token for one room. Only with `--dev`; 404 elsewhere.
#[utoipa::path(
    post, path = "/api/v1/dev/token", tag = "development", request_body = TokenRequest,
    responses(
        (status = 200, body = TokenAnswer),
        (status = 404, description = "Not in development mode", body = Problem, content_type = "application/problem+json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn token(
    req: HttpRequest,
    mut payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    if !shared.auth.dev {
        return Err(Fault::NoSuchPath(req.path().to_owned()));
    }
    let asked: TokenRequest = request::json(&shared, &req, &mut payload).await?;
    let room: RoomName = request::name("the room name", &asked.room)?;
    let identity: Identity = match asked.identity {
        Some(text) => request::name("the identity", &text)?,
        None => random::guest(),
    };
    let expires_at_s = unix_s() + TTL_S;
    let claims = Claims {
        sub: identity.to_string(),
        exp: expires_at_s,
        name: asked.name.unwrap_or_default(),
        video: VideoClaim { room_join: true, room: room.to_string(), ..VideoClaim::default() },
        ..Claims::default()
    };
    let token = shared.auth.sign(None, claims)?;
    let answer = TokenAnswer { token, room: room.to_string(), identity: identity.to_string(), expires_at_s };
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(answer))
}
