//! The events of a room as a stream of server-sent events (HTML standard, `text/event-stream`).

use super::request::{self, Carrier};
use super::sessions::may;
use super::{Shared, views};
use crate::auth::{Act, Caller, Target, allowed};
use crate::error::{Fault, Problem};
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use rondo_actors::api::{EventFeed, Numbered};
use rondo_media::ids::{RoomName, SessionId};
use serde::Deserialize;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use utoipa::IntoParams;

/// A comment this often tells proxies and pages that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What a browser waits before it connects again, in ms; then the first event.
const PREAMBLE: &[u8] = b"retry: 1000\n\n";

/// Query of the stream.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Access token, where headers cannot be set.
    #[allow(dead_code, reason = "read by request::caller; named here for the document")]
    access_token: Option<String>,
    /// Go on behind this event; the header Last-Event-ID does the same.
    last_event_id: Option<String>,
    /// Whose private events come along; a token's own session needs no telling.
    session: Option<String>,
    /// Development mode, without a token: a transport of that session that was made without one, `TP_…` of its
    /// Location; the header Rondo-Transport does the same.
    #[allow(dead_code, reason = "read by request::named_transport; named here for the document")]
    transport: Option<String>,
}

/// Snapshot first, then what happens. A comment every 15 s; ends when the room ends.
#[utoipa::path(
    get, path = "/api/v1/rooms/{room}/events", tag = "rooms", security(("token" = [])),
    params(("room" = String, Path), EventsQuery, ("Last-Event-ID" = Option<String>, Header)),
    responses(
        (status = 200, description = "One event a message: its name, its number, its data", body = views::Event,
            content_type = "text/event-stream"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn stream(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let caller = request::caller(&shared, &req, Carrier::HeaderOrQuery)?;
    let room = request::room(&req)?;
    allowed(Act::Events, &caller, &Target { room: Some(&room), ..Target::default() })?;
    let query: EventsQuery = request::query(&req)?;
    let me = me(&shared, &req, &caller, &room, query.session.as_deref()).await?;
    let header = req.headers().get("Last-Event-ID").and_then(|value| value.to_str().ok());
    let after = header.or(query.last_event_id.as_deref()).and_then(|id| id.trim().parse().ok());
    let feed = shared.node.events(&room, me, after).await?;
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-cache, no-transform"))
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body(feed, KEEP_ALIVE)))
}

/// Whose private events come along: the session that was named, or the token's own.
async fn me(
    shared: &Shared,
    req: &HttpRequest,
    caller: &Caller,
    room: &RoomName,
    named: Option<&str>,
) -> Result<Option<SessionId>, Fault> {
    if let Some(text) = named {
        let session = shared.node.session(request::id("session", text)?).await?;
        if session.room != *room {
            return Err(Fault::NoSuchId { what: "session", text: text.to_owned() });
        }
        may(shared, caller, &session, request::named_transport(req)?, Act::PrivateEvents).await?;
        return Ok(Some(session.participant.session));
    }
    match caller.identity() {
        Some(identity) => Ok(shared.node.session_of(room, identity).await),
        None => Ok(None),
    }
}

fn body(feed: EventFeed, keep_alive: Duration) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let EventFeed { first, next } = feed;
    let opening =
        stream::iter(std::iter::once(Bytes::from_static(PREAMBLE)).chain(first.into_iter().map(|e| message(&e))));
    opening.chain(stream::unfold(next, move |next| following(next, keep_alive))).map(Ok)
}

async fn following(mut next: Receiver<Numbered>, keep_alive: Duration) -> Option<(Bytes, Receiver<Numbered>)> {
    match tokio::time::timeout(keep_alive, next.recv()).await {
        Ok(Some(event)) => Some((message(&event), next)),
        Ok(None) => None,
        Err(_) => Some((Bytes::from_static(b": keep-alive\n\n"), next)),
    }
}

/// One message. JSON has no raw line ends, so one `data:` line holds it.
fn message(event: &Numbered) -> Bytes {
    let data = serde_json::to_string(&views::Event::from(&*event.event)).unwrap_or_else(|error| {
        tracing::error!(%error, "an event cannot be written as JSON");
        "null".to_owned()
    });
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.id, event.event.name()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondo_actors::api::RoomEvent;
    use std::sync::Arc;
    use tokio::sync::mpsc;

    fn event(id: u64, text: &str) -> Numbered {
        Numbered { id, event: Arc::new(RoomEvent::Speakers { identities: vec![text.to_owned()] }) }
    }

    #[actix_web::test]
    async fn first_then_next_with_comments_in_silence_until_the_feed_ends() {
        let (tell, next) = mpsc::channel(4);
        let mut body = Box::pin(body(EventFeed { first: vec![event(7, "a\nb")], next }, Duration::from_millis(1)));
        let mut read = async || body.next().await.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap());
        assert_eq!(read().await.unwrap(), "retry: 1000\n\n");
        assert_eq!(
            read().await.unwrap(),
            "id: 7\nevent: speakers\ndata: {\"event\":\"speakers\",\"identities\":[\"a\\nb\"]}\n\n"
        );
        assert_eq!(read().await.unwrap(), ": keep-alive\n\n");
        tell.send(event(8, "c")).await.unwrap();
        let mut past_comments = async || loop {
            match read().await {
                Some(comment) if comment.starts_with(':') => {}
                other => return other,
            }
        };
        assert!(past_comments().await.unwrap().starts_with("id: 8\n"));
        drop(tell);
        assert_eq!(past_comments().await, None);
    }
}
