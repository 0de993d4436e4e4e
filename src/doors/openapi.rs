//! The API as a document, committed as `docs/openapi.json` and compared in a test.

use super::{dev, events, ops, rooms, sessions, transports, whep, whip};
use actix_web::HttpResponse;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Rondo",
        description = "Rooms, sessions and events of a Rondo server; media by WHIP (RFC 9725) and WHEP \
            (draft-ietf-wish-whep-04). Errors are application/problem+json with a stable code."
    ),
    paths(
        whip::publish_room,
        whip::publish_as,
        whep::play_room,
        whep::play_one,
        transports::patch,
        transports::end,
        rooms::list,
        rooms::create,
        rooms::read,
        rooms::change,
        rooms::end,
        events::stream,
        sessions::list,
        sessions::read,
        sessions::change,
        sessions::remove,
        sessions::wish,
        sessions::timeline,
        dev::token,
        ops::health,
        ops::ready,
        ops::metrics,
    ),
    modifiers(&Token)
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some("HS256 with LiveKit's claims; streams also take the query access_token"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The document, as it is committed.
///
/// # Errors
/// None that can happen with these types; serde's, in principle.
pub fn document() -> Result<String, serde_json::Error> {
    let mut document = Document::openapi();
    // The licence and the crate's description say nothing about the API.
    document.info.license = None;
    Ok(document.to_pretty_json()? + "\n")
}

/// Serves it.
pub async fn openapi_json() -> HttpResponse {
    match document() {
        Ok(text) => HttpResponse::Ok().content_type("application/json").body(text),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::paths;

    #[test]
    fn the_document_is_the_committed_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
        let document = document().unwrap();
        if std::env::var_os("RONDO_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(path, &document).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == document,
            "run the tests once with RONDO_UPDATE_SNAPSHOTS=1, look at the difference and commit docs/openapi.json"
        );
    }

    #[test]
    fn every_path_is_described_except_pages_and_the_document() {
        let described: Vec<String> = Document::openapi().paths.paths.keys().cloned().collect();
        for path in paths::ALL {
            let left_out = [paths::OPENAPI, paths::LOBBY, paths::WATCH, paths::ASSET].contains(path);
            assert_eq!(described.iter().any(|d| d == path), !left_out, "{path}");
        }
        assert_eq!(described.len() + 4, paths::ALL.len());
    }
}
