//! The pages, embedded from `web/dist` (feature `ui`): one file each, checked anew by ETag on every load.

use crate::error::Fault;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};

/// Pages load from here alone; scripts and styles are files of their own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    media-src 'self' blob:; connect-src 'self'; font-src 'self'; worker-src 'self' blob:; manifest-src 'self'; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// Devices that a call uses, and nothing else.
const PERMISSIONS: &str =
    "camera=(self), microphone=(self), display-capture=(self), screen-wake-lock=(self), geolocation=(), payment=()";
const NOT_BUILT: &str = "Rondo is running, without its pages: this binary was built without them.\n\
    Publish with WHIP at /whip/{room}, play with WHEP at /whep/{room}; the API is described at /api/v1/openapi.json.\n";

#[cfg(feature = "ui")]
#[derive(rust_embed::Embed)]
#[folder = "$CARGO_MANIFEST_DIR/web/dist"]
struct Dist;

struct File {
    bytes: std::borrow::Cow<'static, [u8]>,
    etag: String,
}

#[cfg(feature = "ui")]
fn file(path: &str) -> Option<File> {
    // Dot files keep the folder in the repository; they are no part of the pages.
    if path.split('/').any(|part| part.starts_with('.')) {
        return None;
    }
    let found = Dist::get(path)?;
    let etag = crate::random::hex(found.metadata.sha256_hash().get(..16)?);
    Some(File { bytes: found.data, etag: format!("\"{etag}\"") })
}

#[cfg(not(feature = "ui"))]
fn file(_path: &str) -> Option<File> {
    None
}

/// `/`: the lobby for browsers; `OK` for everything else, as LiveKit's clients expect.
pub async fn lobby(req: HttpRequest) -> HttpResponse {
    let accept = req.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accept.contains("text/html") {
        return plain("OK");
    }
    page(&req, &["index.html"])
}

/// `/watch/{room}`: the page reads the room from its own address.
pub async fn watch(req: HttpRequest) -> HttpResponse {
    page(&req, &["watch.html", "watch/index.html", "index.html"])
}

/// A file of the pages.
pub async fn asset(req: HttpRequest) -> Result<HttpResponse, Fault> {
    let path = req.match_info().get("asset").unwrap_or_default();
    match file(path) {
        Some(found) => Ok(serve(&req, path, found)),
        None => Err(Fault::NoSuchPath(req.path().chars().take(120).collect())),
    }
}

fn page(req: &HttpRequest, names: &[&str]) -> HttpResponse {
    match names.iter().find_map(|name| Some((name, file(name)?))) {
        Some((name, found)) => serve(req, name, found),
        None => plain(NOT_BUILT),
    }
}

fn serve(req: &HttpRequest, path: &str, found: File) -> HttpResponse {
    let known = req.headers().get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Compression on the way makes a tag weak (RFC 9110 §8.8.3); this comparison is the weak one.
    let same = known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == found.etag || tag.trim() == "*");
    let mut response = if same { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    response
        .insert_header((header::ETAG, format!("W/{}", found.etag)))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        // Of scripts too: a worker lives by the policy of its own file.
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header(("Permissions-Policy", PERMISSIONS));
    if same {
        return response.finish();
    }
    response.content_type(content_type(path)).body(found.bytes.into_owned())
}

fn plain(text: &'static str) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; charset=utf-8").insert_header((header::VARY, "Accept")).body(text)
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::to_bytes;
    use actix_web::test::TestRequest;

    #[actix_web::test]
    async fn the_root_is_ok_for_what_is_no_browser() {
        for accept in [None, Some("*/*"), Some("application/json")] {
            let mut req = TestRequest::get();
            if let Some(accept) = accept {
                req = req.insert_header((header::ACCEPT, accept));
            }
            let response = lobby(req.to_http_request()).await;
            assert_eq!(response.status(), 200);
            assert_eq!(to_bytes(response.into_body()).await.unwrap(), "OK");
        }
    }

    #[actix_web::test]
    async fn a_file_is_served_once_and_then_confirmed() {
        let of = |etag: &str| File { bytes: b"<p>"[..].into(), etag: etag.to_owned() };
        let req = TestRequest::get().to_http_request();
        let first = serve(&req, "index.html", of("\"a\""));
        assert_eq!(first.status(), 200);
        assert_eq!(first.headers().get(header::CONTENT_TYPE).unwrap(), "text/html; charset=utf-8");
        let policy = first.headers().get(header::CONTENT_SECURITY_POLICY).unwrap().to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        let tag = first.headers().get(header::ETAG).unwrap().to_str().unwrap().to_owned();
        let again = TestRequest::get().insert_header((header::IF_NONE_MATCH, tag)).to_http_request();
        assert_eq!(serve(&again, "index.html", of("\"a\"")).status(), 304);
        assert_eq!(serve(&again, "index.html", of("\"b\"")).status(), 200);
    }

    #[cfg(feature = "ui")]
    #[test]
    fn dot_files_are_no_pages() {
        assert!(file(".gitkeep").is_none());
        assert!(file("../Cargo.toml").is_none());
    }
}
