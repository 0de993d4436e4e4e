//! Play: WHEP, draft-ietf-wish-whep-04.

use super::join::SdpPhase;
use super::request::{self, Carrier};
use super::{Shared, join};
use crate::auth::{Act, Target, allowed};
use crate::error::{Fault, Problem};
use crate::random;
use actix_web::{HttpRequest, HttpResponse, web};
use rondo_actors::api::{Door, Join, Purpose};
use tracing::info_span;

/// Play a room: its tracks fill the offered sections, now or later.
#[utoipa::path(
    post, path = "/whep/{room}", tag = "media", security(("token" = [])),
    params(("room" = String, Path)),
    request_body(content = String, content_type = "application/sdp"),
    responses(
        (status = 201, description = "SDP answer", content_type = "application/sdp", body = String, headers(
            ("Location" = String, description = "The transport, relative"),
            ("ETag" = String, description = "ICE session, for If-Match"),
            ("Rondo-Session" = String, description = "PA_…"),
        )),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Full, busy or going down", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn play_room(
    req: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    play(req, payload, shared).await
}

/// Play what one participant publishes.
#[utoipa::path(
    post, path = "/whep/{room}/{identity}", tag = "media", security(("token" = [])),
    params(("room" = String, Path), ("identity" = String, Path, description = "Whom to play")),
    request_body(content = String, content_type = "application/sdp"),
    responses(
        (status = 201, description = "SDP answer", content_type = "application/sdp", body = String),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Full, busy or going down", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn play_one(
    req: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    play(req, payload, shared).await
}

async fn play(req: HttpRequest, mut payload: web::Payload, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    join::serve(&shared, Door::Whep, &req, admitted(&shared, &req, &mut payload)).await
}

async fn admitted(shared: &Shared, req: &HttpRequest, payload: &mut web::Payload) -> Result<(Join, SdpPhase), Fault> {
    let (room, only) = (request::room(req)?, request::identity(req)?);
    let caller = info_span!("token").in_scope(|| {
        let caller = request::caller(shared, req, Carrier::Header)?;
        allowed(Act::Play, &caller, &Target { room: Some(&room), ..Target::default() })?;
        Ok::<_, Fault>(caller)
    })?;
    let (offer, sdp) = join::offer(shared, req, payload).await?;
    let join = Join {
        identity: caller.identity().cloned().unwrap_or_else(random::guest),
        name: caller.name().map(str::to_owned),
        guest: caller.is_guest(),
        door: Door::Whep,
        purpose: Purpose::Play { only },
        kind: None,
        room,
        offer,
    };
    Ok((join, sdp))
}
