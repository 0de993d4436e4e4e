//! A transport as a resource: trickle ICE, ICE restart and the end (RFC 9725 §4.2, §4.3).

use super::cors::FRAGMENT;
use super::request::{self, Carrier};
use super::{Shared, join};
use crate::auth::{Act, Target, allowed};
use crate::error::{Fault, Problem};
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use rondo_actors::api::{Refusal, TransportInfo};
use rondo_media::ids::TransportId;

/// Add ICE candidates that came later, or restart ICE. With `If-Match: "*"` and new `a=ice-ufrag` and `a=ice-pwd` a new
/// ICE session begins: the answer is our half of it. Media goes on, on the old path until the new one is proven.
#[utoipa::path(
    patch, path = "/transports/{transport}", tag = "media", security(("token" = [])),
    params(
        ("transport" = String, Path),
        ("If-Match" = String, Header, description = "The newest ETag: more candidates; `\"*\"`: an ICE restart"),
    ),
    request_body(content = String, content_type = "application/trickle-ice-sdpfrag"),
    responses(
        (status = 204, description = "Candidates taken"),
        (status = 200, description = "ICE restarted", content_type = "application/trickle-ice-sdpfrag", body = String,
            headers(("ETag" = String, description = "The new ICE session, for If-Match"))),
        (status = "4XX", description = "Refused; the ICE session stays as it is", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub async fn patch(
    req: HttpRequest,
    mut payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    let (id, info) = permitted(&shared, &req, Act::Trickle).await?;
    request::media_type(&req, FRAGMENT)?;
    let meant = if_match(req.headers().get(header::IF_MATCH), &join::quoted(&info.etag))?;
    let body = request::body(&req, &mut payload, shared.sdp_bytes).await?;
    let fragment =
        String::from_utf8(body.to_vec()).map_err(|_| Refusal::SdpMalformed("the fragment is not UTF-8".to_owned()))?;
    let restarted = match meant {
        Meant::Candidates => shared.node.trickle(id, fragment).await.map(|()| None)?,
        Meant::Restart => shared.node.restart_ice(id, fragment).await?,
    };
    Ok(match restarted {
        None => HttpResponse::NoContent().finish(),
        Some(restarted) => HttpResponse::Ok()
            .content_type(FRAGMENT)
            .insert_header((header::ETAG, join::quoted(&restarted.etag)))
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .body(restarted.fragment),
    })
}

/// End a transport; the participant leaves with its last one.
#[utoipa::path(
    delete, path = "/transports/{transport}", tag = "media", security(("token" = [])),
    params(("transport" = String, Path)),
    responses(
        (status = 200, description = "Ended"),
        (status = "4XX", description = "Refused; 404 with the reason if it had ended before", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub async fn end(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let (id, _) = permitted(&shared, &req, Act::EndTransport).await?;
    shared.node.leave(id).await?;
    Ok(HttpResponse::Ok().finish())
}

async fn permitted(shared: &Shared, req: &HttpRequest, act: Act) -> Result<(TransportId, TransportInfo), Fault> {
    let caller = request::caller(shared, req, Carrier::Header)?;
    let id = request::transport(req)?;
    let info = shared.node.transport(id).await?;
    let target =
        Target { room: Some(&info.room), identity: Some(&info.identity), guest_made: info.guest, sources: &[] };
    allowed(act, &caller, &target)?;
    Ok((id, info))
}

/// What a fragment is sent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meant {
    Candidates,
    Restart,
}

/// RFC 9725 §4.3: a fragment of candidates names the ICE session it belongs to, one that restarts ICE any. That one is
/// written `"*"` there, in quotes, and `*` in HTTP (RFC 9110 §13.1.1); both are taken.
fn if_match(given: Option<&header::HeaderValue>, etag: &str) -> Result<Meant, Fault> {
    let given = given.ok_or(Fault::IfMatchMissing)?.to_str().map_err(|_| Fault::IfMatchFailed)?;
    if matches!(given.trim(), "*" | "\"*\"") {
        return Ok(Meant::Restart);
    }
    // The tags we give hold no comma, so splitting a list at commas is enough (RFC 9110 §13.1.1: strong comparison).
    let named = given.split(',').any(|tag| tag.trim() == etag);
    if named { Ok(Meant::Candidates) } else { Err(Fault::IfMatchFailed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_must_name_its_ice_session() {
        let check = |given: &'static str| if_match(Some(&header::HeaderValue::from_static(given)), "\"a1\"");
        assert_eq!(if_match(None, "\"a1\""), Err(Fault::IfMatchMissing));
        assert_eq!(check("*"), Ok(Meant::Restart));
        assert_eq!(check("\"*\""), Ok(Meant::Restart));
        assert_eq!(check("\"a1\""), Ok(Meant::Candidates));
        assert_eq!(check("\"b\", \"a1\""), Ok(Meant::Candidates));
        for other in ["\"a2\"", "a1", "W/\"a1\"", ""] {
            assert_eq!(check(other), Err(Fault::IfMatchFailed), "{other}");
        }
    }
}
