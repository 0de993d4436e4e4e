//! Sessions over HTTP: who is in, how it goes, and what they or an admin change.

use super::request::{self, Carrier};
use super::rooms::{METADATA_BYTES_MAX, bounded};
use super::{Shared, views};
use crate::auth::{Act, Caller, Target, allowed};
use crate::error::{Fault, Problem};
use actix_web::{HttpRequest, HttpResponse, web};
use rondo_actors::api::{SessionInfo, SessionPatch, Wish};
use rondo_media::ids::{SessionId, TrackId, TransportId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// Name to show, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Wishes of one request.
const WISHES_MAX: usize = 1_000;

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only of this room.
    room: Option<String>,
    /// Only in this state.
    state: Option<views::SessionState>,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// Go on behind this session, `PA_…`: the last one of the page before.
    after: Option<String>,
}

/// Body of `PATCH /api/v1/sessions/{session}`: what is left out stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionChange {
    /// `TR_…` → muted.
    #[schema(example = json!({"TR_abcdefghijkl": true}))]
    muted: BTreeMap<String, bool>,
    /// Name to show, at most 256 bytes.
    name: Option<String>,
    /// Opaque to the server, at most 64 KiB.
    metadata: Option<String>,
}

/// What a viewer wishes of one track, in place of what it wished before. The rest chooses the layer, of a track that has
/// several: the smallest that fills the size it is shown at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrackWish {
    /// `TR_…`
    track: String,
    /// Send nothing of it. Acts now: where sections are short, a paused track's goes to one that is not.
    #[serde(default)]
    paused: bool,
    /// Width it is shown at, in physical pixels.
    width_px: Option<u32>,
    /// Height it is shown at, in physical pixels.
    height_px: Option<u32>,
    /// Frames a second that are of use: more are left out where the stream has temporal layers.
    fps_max: Option<u32>,
    /// Higher is served first.
    priority: Option<u8>,
}

/// How the connections of a session came up.
#[derive(Debug, Serialize, ToSchema)]
pub struct Timeline {
    /// `PA_…`
    session: String,
    /// Milliseconds since 1970.
    joined_at_ms: u64,
    /// One for each connection.
    transports: Vec<TransportTimeline>,
}

/// How one connection came up.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransportTimeline {
    /// `whip` or `whep`.
    door: String,
    /// ICE and DTLS are up.
    connected: bool,
    /// Phases that ended so far, earliest first.
    phases: Vec<Phase>,
}

/// The end of one phase.
#[derive(Debug, Serialize, ToSchema)]
pub struct Phase {
    /// `sdp`, `ice`, `dtls`, `first_packet`, `first_key_frame`, `first_frame_sent`.
    name: String,
    /// Milliseconds from the request on.
    after_ms: u64,
}

/// List sessions that are not over, in order of their ids, a page at a time.
#[utoipa::path(
    get, path = "/api/v1/sessions", tag = "sessions", security(("token" = [])), params(ListQuery),
    responses(
        (status = 200, body = Vec<views::Session>),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let caller = request::caller(&shared, &req, Carrier::Header)?;
    let query: ListQuery = request::query(&req)?;
    let room = query.room.map(|text| request::name("the room name", &text)).transpose()?;
    allowed(Act::ListSessions, &caller, &Target { room: room.as_ref(), ..Target::default() })?;
    let limit = request::limit(query.limit)?;
    let after: Option<SessionId> = query.after.map(|text| request::id("session", &text)).transpose()?;
    let sessions = shared.node.sessions(room, query.state.map(Into::into)).await?;
    let mut shown = Vec::new();
    for session in request::page(sessions, |session| &session.participant.session, after.as_ref(), limit) {
        let ids = may_end(&shared, &caller, &session).await;
        shown.push(views::Session::of(&session, ids));
    }
    Ok(HttpResponse::Ok().json(shown))
}

/// Read a session.
#[utoipa::path(
    get, path = "/api/v1/sessions/{session}", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path)),
    responses(
        (status = 200, body = views::Session),
        (status = "4XX", description = "Refused; 404 with the reason if it has ended", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub async fn read(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let (session, caller) = permitted(&shared, &req, Act::ReadSession).await?;
    let ids = may_end(&shared, &caller, &session).await;
    Ok(HttpResponse::Ok().json(views::Session::of(&session, ids)))
}

/// Mute tracks, change name or metadata: one's own, or as the room's admin somebody else's.
#[utoipa::path(
    patch, path = "/api/v1/sessions/{session}", tag = "sessions", security(("token" = [])),
    params(
        ("session" = String, Path),
        ("Rondo-Transport" = Option<String>, Header,
            description = "Development mode, without a token: a transport of this session that was made without one, \
                `TP_…` of its Location"),
        ("transport" = Option<String>, Query, description = "The same, where headers cannot be set"),
    ),
    request_body = SessionChange,
    responses(
        (status = 200, body = views::Session),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn change(
    req: HttpRequest,
    mut payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    let caller = request::caller(&shared, &req, Carrier::Header)?;
    let named = request::named_transport(&req)?;
    let session = shared.node.session(request::session(&req)?).await?;
    let by = match may(&shared, &caller, &session, named, Act::PatchOwn).await {
        Ok(()) => None,
        Err(own) => match may(&shared, &caller, &session, None, Act::PatchOther).await {
            Ok(()) => Some(caller.told_as()),
            Err(_) => return Err(own),
        },
    };
    let change: SessionChange = request::json(&shared, &req, &mut payload).await?;
    bounded("name", change.name.as_deref(), NAME_BYTES_MAX)?;
    bounded("metadata", change.metadata.as_deref(), METADATA_BYTES_MAX)?;
    let mut muted = BTreeMap::new();
    for (track, on) in change.muted {
        muted.insert(request::id::<TrackId>("track", &track)?, on);
    }
    let patch = SessionPatch { muted, name: change.name, metadata: change.metadata, by };
    let changed = shared.node.patch_session(session.participant.session, patch).await?;
    let ids = may_end(&shared, &caller, &changed).await;
    Ok(HttpResponse::Ok().json(views::Session::of(&changed, ids)))
}

/// Remove somebody from a room.
#[utoipa::path(
    delete, path = "/api/v1/sessions/{session}", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path)),
    responses(
        (status = 200, description = "Removed"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn remove(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let (session, caller) = permitted(&shared, &req, Act::RemoveSession).await?;
    shared.node.remove_session(session.participant.session, Some(caller.told_as())).await?;
    Ok(HttpResponse::Ok().finish())
}

/// Say which tracks are wanted, how large and how urgent.
#[utoipa::path(
    patch, path = "/api/v1/sessions/{session}/subscriptions", tag = "sessions", security(("token" = [])),
    params(
        ("session" = String, Path),
        ("Rondo-Transport" = Option<String>, Header,
            description = "Development mode, without a token: a transport of this session that was made without one, \
                `TP_…` of its Location"),
        ("transport" = Option<String>, Query, description = "The same, where headers cannot be set"),
    ),
    request_body = Vec<TrackWish>,
    responses(
        (status = 204, description = "Taken"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn wish(
    req: HttpRequest,
    mut payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    let (session, _) = permitted(&shared, &req, Act::Wish).await?;
    let wishes: Vec<TrackWish> = request::json(&shared, &req, &mut payload).await?;
    if wishes.len() > WISHES_MAX {
        return Err(Fault::BadValue(format!("{} wishes; at most {WISHES_MAX} are allowed", wishes.len())));
    }
    let wishes = wishes.into_iter().map(TrackWish::read).collect::<Result<Vec<_>, _>>()?;
    shared.node.wish(session.participant.session, wishes).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// How the connections of a session came up.
#[utoipa::path(
    get, path = "/api/v1/sessions/{session}/timeline", tag = "sessions", security(("token" = [])),
    params(("session" = String, Path)),
    responses(
        (status = 200, body = Timeline),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn timeline(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let (session, _) = permitted(&shared, &req, Act::ReadSession).await?;
    Ok(HttpResponse::Ok().json(Timeline::of(&session)))
}

async fn permitted(shared: &Shared, req: &HttpRequest, act: Act) -> Result<(SessionInfo, Caller), Fault> {
    let caller = request::caller(shared, req, Carrier::Header)?;
    let named = request::named_transport(req)?;
    let session = shared.node.session(request::session(req)?).await?;
    may(shared, &caller, &session, named, act).await?;
    Ok((session, caller))
}

/// Whether the caller may do this to this session; `named` is a transport that it names as its own.
///
/// # Errors
/// Why not.
pub async fn may(
    shared: &Shared,
    caller: &Caller,
    session: &SessionInfo,
    named: Option<TransportId>,
    act: Act,
) -> Result<(), Fault> {
    let guest_made = match named {
        Some(named) => made_by_guests(shared, session, named).await,
        None => false,
    };
    let (room, identity) = (Some(&session.room), Some(&session.participant.identity));
    Ok(allowed(act, caller, &Target { room, identity, guest_made, sources: &[] })?)
}

/// Whether `named` is one of the session's transports and none of them was made with a token: a guest that publishes
/// under the name of somebody with a token gets a transport in that one's session, and no say over it.
async fn made_by_guests(shared: &Shared, session: &SessionInfo, named: TransportId) -> bool {
    let mut holds = false;
    for transport in &session.transports {
        let Ok(id) = transport.id.parse::<TransportId>() else { return false };
        if !shared.node.transport(id).await.is_ok_and(|info| info.guest) {
            return false;
        }
        holds |= id == named;
    }
    holds
}

async fn may_end(shared: &Shared, caller: &Caller, session: &SessionInfo) -> bool {
    // A guest is told no ids at all: who knows the id of a guest's transport may end it, and change its session.
    !caller.is_guest() && may(shared, caller, session, None, Act::EndTransport).await.is_ok()
}

impl TrackWish {
    fn read(self) -> Result<Wish, Fault> {
        Ok(Wish {
            track: request::id("track", &self.track)?,
            paused: self.paused,
            width_px: self.width_px,
            height_px: self.height_px,
            fps_max: self.fps_max,
            priority: self.priority,
        })
    }
}

impl Timeline {
    fn of(session: &SessionInfo) -> Self {
        let transports = session.transports.iter().map(|transport| {
            let phases = transport.phases_ms.iter();
            let mut phases: Vec<_> =
                phases.map(|(name, after_ms)| Phase { name: name.clone(), after_ms: *after_ms }).collect();
            phases.sort_by_key(|phase| phase.after_ms);
            TransportTimeline { door: transport.door.clone(), connected: transport.connected, phases }
        });
        Self {
            session: session.participant.session.to_string(),
            joined_at_ms: session.participant.joined_at_ms,
            transports: transports.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_with_its_defaults() {
        let wishes: Vec<TrackWish> =
            serde_json::from_str(r#"[{"track":"TR_abcdefghijkl","width_px":640},{"track":"x","paused":true}]"#)
                .unwrap();
        let mut wishes = wishes.into_iter();
        let first = wishes.next().unwrap().read().unwrap();
        assert_eq!((first.paused, first.width_px, first.height_px), (false, Some(640), None));
        assert_eq!(wishes.next().unwrap().read().unwrap_err().status(), 404);
    }
}
