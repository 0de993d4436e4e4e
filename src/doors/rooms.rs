//! Rooms over HTTP.

use super::request::{self, Carrier};
use super::{Shared, views};
use crate::auth::{Act, Caller, Target, allowed};
use crate::error::{Fault, Problem};
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use rondo_actors::api::RoomSettings;
use rondo_media::ids::RoomName;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// Metadata of a room or a participant, in bytes.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// At most so many.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// Go on behind this name: the last one of the page before.
    after: Option<String>,
}

/// Body of `POST /api/v1/rooms`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRoom {
    /// 1 to 128 of A-Z a-z 0-9 . _ ~ @ : -
    name: String,
    /// Fixes the kind; left out, it follows from who publishes.
    kind: Option<views::RoomKind>,
    /// Most participants at once, up to the server's limit.
    max_participants: Option<usize>,
    /// Opaque to the server, at most 64 KiB.
    metadata: Option<String>,
}

/// Body of `PATCH /api/v1/rooms/{room}`: what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoomChange {
    /// Fixes the kind.
    kind: Option<views::RoomKind>,
    /// Most participants at once, up to the server's limit.
    max_participants: Option<usize>,
    /// Opaque to the server, at most 64 KiB.
    metadata: Option<String>,
}

/// List rooms, in order of their names (by byte), a page at a time.
#[utoipa::path(
    get, path = "/api/v1/rooms", tag = "rooms", security(("token" = [])), params(ListQuery),
    responses(
        (status = 200, body = Vec<views::Room>),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let caller = request::caller(&shared, &req, Carrier::Header)?;
    allowed(Act::ListRooms, &caller, &Target::default())?;
    let query: ListQuery = request::query(&req)?;
    let limit = request::limit(query.limit)?;
    let after: Option<RoomName> = query.after.map(|text| request::name("the room name", &text)).transpose()?;
    let rooms = request::page(shared.node.rooms().await?, |room| &room.name, after.as_ref(), limit);
    Ok(HttpResponse::Ok().json(rooms.iter().map(views::Room::from).collect::<Vec<_>>()))
}

/// Open a room.
#[utoipa::path(
    post, path = "/api/v1/rooms", tag = "rooms", security(("token" = [])), request_body = NewRoom,
    responses(
        (status = 201, body = views::Room, headers(("Location" = String, description = "The room, relative"))),
        (status = 409, description = "It exists", body = Problem, content_type = "application/problem+json"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many rooms", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn create(
    req: HttpRequest,
    mut payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    let caller = request::caller(&shared, &req, Carrier::Header)?;
    allowed(Act::CreateRoom, &caller, &Target::default())?;
    let new: NewRoom = request::json(&shared, &req, &mut payload).await?;
    let name: RoomName = request::name("the room name", &new.name)?;
    let settings = settings(new.kind, new.max_participants, new.metadata)?;
    let room = shared.node.create_room(name, settings).await?;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/api/v1/rooms/{}", room.name)))
        .json(views::Room::from(&room)))
}

/// Read a room.
#[utoipa::path(
    get, path = "/api/v1/rooms/{room}", tag = "rooms", security(("token" = [])), params(("room" = String, Path)),
    responses(
        (status = 200, body = views::Room),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn read(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let (name, _) = permitted(&shared, &req, Act::ReadRoom)?;
    Ok(HttpResponse::Ok().json(views::Room::from(&shared.node.room(&name).await?)))
}

/// Change a room.
#[utoipa::path(
    patch, path = "/api/v1/rooms/{room}", tag = "rooms", security(("token" = [])), params(("room" = String, Path)),
    request_body = RoomChange,
    responses(
        (status = 200, body = views::Room),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn change(
    req: HttpRequest,
    mut payload: web::Payload,
    shared: web::Data<Shared>,
) -> Result<HttpResponse, Fault> {
    let (name, _) = permitted(&shared, &req, Act::PatchRoom)?;
    let change: RoomChange = request::json(&shared, &req, &mut payload).await?;
    let settings = settings(change.kind, change.max_participants, change.metadata)?;
    Ok(HttpResponse::Ok().json(views::Room::from(&shared.node.patch_room(&name, settings).await?)))
}

/// End a room for everybody in it.
#[utoipa::path(
    delete, path = "/api/v1/rooms/{room}", tag = "rooms", security(("token" = [])), params(("room" = String, Path)),
    responses(
        (status = 200, description = "Ended"),
        (status = "4XX", description = "Refused", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn end(req: HttpRequest, shared: web::Data<Shared>) -> Result<HttpResponse, Fault> {
    let (name, caller) = permitted(&shared, &req, Act::DeleteRoom)?;
    shared.node.delete_room(&name, Some(caller.told_as())).await?;
    Ok(HttpResponse::Ok().finish())
}

fn permitted(shared: &Shared, req: &HttpRequest, act: Act) -> Result<(RoomName, Caller), Fault> {
    let caller = request::caller(shared, req, Carrier::Header)?;
    let name = request::room(req)?;
    allowed(act, &caller, &Target { room: Some(&name), ..Target::default() })?;
    Ok((name, caller))
}

fn settings(
    kind: Option<views::RoomKind>,
    max_participants: Option<usize>,
    metadata: Option<String>,
) -> Result<RoomSettings, Fault> {
    if max_participants == Some(0) {
        return Err(Fault::BadValue("max_participants is 0; allowed is 1 or more".to_owned()));
    }
    bounded("metadata", metadata.as_deref(), METADATA_BYTES_MAX)?;
    Ok(RoomSettings { kind: kind.map(Into::into), max_participants, metadata })
}

/// Refuses a text that is too long.
///
/// # Errors
/// `BadValue`.
pub fn bounded(what: &str, text: Option<&str>, bytes_max: usize) -> Result<(), Fault> {
    match text {
        Some(text) if text.len() > bytes_max => {
            Err(Fault::BadValue(format!("{what} has {} bytes; at most {bytes_max} are allowed", text.len())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_bounds() {
        assert_eq!(settings(None, Some(0), None).unwrap_err().status(), 422);
        assert!(settings(None, Some(1), Some("x".repeat(65_536))).is_ok());
        assert_eq!(settings(None, None, Some("x".repeat(65_537))).unwrap_err().status(), 422);
        let live = settings(Some(views::RoomKind::Live), None, None).unwrap();
        assert_eq!(live.kind, Some(rondo_actors::api::RoomKind::Live));
    }

    #[test]
    fn unknown_fields_are_named() {
        let error = serde_json::from_str::<NewRoom>(r#"{"name":"r","max":5}"#).unwrap_err();
        assert!(error.to_string().contains("`max`"));
    }
}
