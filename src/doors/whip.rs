//! Publish: WHIP, RFC 9725.

use super::join::SdpPhase;
use super::request::{self, Carrier};
use super::{Shared, join};
use crate::auth::{Act, Target, allowed};
use crate::error::{Fault, Problem};
use crate::random;
use actix_web::{HttpRequest, HttpResponse, web};
use rondo_actors::api::{Door, Join, Purpose, RoomKind, Source};
use serde::Deserialize;
use tracing::info_span;
use utoipa::{IntoParams, ToSchema};

/// Query of a publishing POST.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PublishQuery {
    /// What the offer's sections show: `camera` (with `microphone`) or `screen` (with `screen_audio`).
    source: Option<Published>,
    /// `live` opens the room as a live push.
    kind: Option<OpenAs>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Published {
    Camera,
    Screen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OpenAs {
    Live,
}

/// Publish into a room, as the token's identity, or as a guest.
#[utoipa::path(
    post, path = "/whip/{room}", tag = "media", security(("token" = [])),
    params(("room" = String, Path, description = "1 to 128 of A-Z a-z 0-9 . _ ~ @ : -"), PublishQuery),
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
pub async fn publish_room(
    req: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    publish(req, payload, shared).await
}

/// Publish into a room as this identity, which must be the token's.
#[utoipa::path(
    post, path = "/whip/{room}/{identity}", tag = "media", security(("token" = [])),
    params(("room" = String, Path), ("identity" = String, Path), PublishQuery),
    request_body(content = String, content_type = "application/sdp"),
    responses(
        (status = 201, description = "SDP answer", content_type = "application/sdp", body = String),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Full, busy or going down", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn publish_as(
    req: HttpRequest,
    payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    publish(req, payload, shared).await
}

async fn publish(
    req: HttpRequest,
    mut payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    join::serve(&shared, Door::Whip, &req, admitted(&shared, &req, &mut payload)).await
}

/// Everything that is checked before the node is asked.
async fn admitted(shared: &Shared, req: &HttpRequest, payload: &mut web::Payload) -> Result<(Join, SdpPhase), Fault> {
    let (room, path_identity) = (request::room(req)?, request::identity(req)?);
    let query: PublishQuery = request::query(req)?;
    let may = |caller: &_, sources: &[Source]| {
        let target = Target { room: Some(&room), identity: path_identity.as_ref(), sources, ..Target::default() };
        allowed(Act::Publish, caller, &target)
    };
    let caller = info_span!("token").in_scope(|| {
        let caller = request::caller(shared, req, Carrier::Header)?;
        may(&caller, &[])?;
        Ok::<_, Fault>(caller)
    })?;
    let (offer, sdp) = join::offer(shared, req, payload).await?;
    let (audio, video) = match query.source.unwrap_or(Published::Camera) {
        Published::Camera => (Source::Microphone, Source::Camera),
        Published::Screen => (Source::ScreenAudio, Source::Screen),
    };
    may(&caller, &sent(&offer, audio, video))?;
    let kind = query.kind.map(|OpenAs::Live| RoomKind::Live);
    let identity = path_identity.or_else(|| caller.identity().cloned()).unwrap_or_else(random::guest);
    let join = Join {
        name: caller.name().map(str::to_owned),
        guest: caller.is_guest(),
        door: Door::Whip,
        purpose: Purpose::Publish { audio, video },
        room,
        identity,
        kind,
        offer,
    };
    Ok((join, sdp))
}

/// Which of the two sources an offer would publish: those with a section that sends. Reading it whole is the
/// transport's task; this only decides what the token must allow, so what is unclear counts as sending.
fn sent(offer: &str, audio: Source, video: Source) -> Vec<Source> {
    let sends = |section: &str| !section.lines().any(|line| matches!(line.trim_end(), "a=recvonly" | "a=inactive"));
    let (mut has_audio, mut has_video) = (false, false);
    // A section begins at `m=` at the start of a line; what comes before the first one is the session's part.
    for section in offer.split("\nm=").skip(1) {
        has_audio |= section.starts_with("audio") && sends(section);
        has_video |= section.starts_with("video") && sends(section);
    }
    [(has_audio, audio), (has_video, video)].into_iter().filter(|(has, _)| *has).map(|(_, source)| source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_offer_publishes_is_what_its_sections_send() {
        let sent = |offer: &str| sent(offer, Source::Microphone, Source::Camera);
        let session = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n";
        let both =
            format!("{session}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=sendonly\r\nm=video 9 X 96\r\na=sendrecv\r\n");
        assert_eq!(sent(&both), [Source::Microphone, Source::Camera]);
        assert_eq!(sent(&both.replace("a=sendrecv", "a=inactive")), [Source::Microphone]);
        assert_eq!(sent(&both.replace("a=sendonly", "a=recvonly")), [Source::Camera]);
        assert_eq!(sent(&both.replace("\r\n", "\n")), [Source::Microphone, Source::Camera]);
        assert_eq!(sent(&format!("{session}m=application 9 X webrtc\r\n")), []);
        assert_eq!(sent(""), []);
    }
}
