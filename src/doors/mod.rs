//! How the world reaches in over HTTP. A door parses, asks who the caller is, and hands one command to the node.

mod around;
mod cors;
mod dev;
mod events;
mod join;
mod openapi;
mod ops;
mod page;
mod request;
mod rooms;
mod sessions;
#[cfg(test)]
mod tests;
mod transports;
mod views;
mod whep;
mod whip;

pub use openapi::document;

use crate::auth::Auth;
use crate::config::Config;
use crate::error::Fault;
use crate::telemetry::instruments::DoorCounters;
use crate::tls::Renewed;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::{Compress, NormalizePath, TrailingSlash, from_fn};
use actix_web::{App, Error, HttpRequest, Resource, web};
use rondo_actors::node::Node;
use std::sync::Arc;

/// What every door shares.
pub struct Shared {
    /// The actors.
    pub node: Node,
    /// Keys, and whether guests are let in.
    pub auth: Auth,
    /// What the doors count.
    pub counters: DoorCounters,
    /// `limits.sdp_bytes`
    pub sdp_bytes: usize,
    /// `limits.body_bytes`
    pub body_bytes: usize,
    /// The certificate in use, if any.
    pub tls: Option<Arc<Renewed>>,
}

impl Shared {
    /// For a node with this configuration.
    pub fn new(node: Node, config: &Config, tls: Option<Arc<Renewed>>) -> Self {
        Self {
            node,
            auth: Auth::new(config.effective_keys(), config.dev),
            counters: DoorCounters::new(),
            sdp_bytes: config.limits.sdp_bytes,
            body_bytes: config.limits.body_bytes,
            tls,
        }
    }
}

/// Every path served, as patterns: a closed set, because each is a metric label.
pub mod paths {
    macro_rules! paths {
        ($($name:ident = $path:literal,)+) => {
            $(#[allow(missing_docs, reason = "the path says it")] pub const $name: &str = $path;)+
            /// All of them, in label order.
            pub const ALL: &[&str] = &[$($path),+];
        };
    }
    paths! {
        WHIP = "/whip/{room}",
        WHIP_AS = "/whip/{room}/{identity}",
        WHEP = "/whep/{room}",
        WHEP_ONE = "/whep/{room}/{identity}",
        TRANSPORT = "/transports/{transport}",
        ROOMS = "/api/v1/rooms",
        ROOM = "/api/v1/rooms/{room}",
        EVENTS = "/api/v1/rooms/{room}/events",
        SESSIONS = "/api/v1/sessions",
        SESSION = "/api/v1/sessions/{session}",
        SUBSCRIPTIONS = "/api/v1/sessions/{session}/subscriptions",
        TIMELINE = "/api/v1/sessions/{session}/timeline",
        DEV_TOKEN = "/api/v1/dev/token",
        OPENAPI = "/api/v1/openapi.json",
        HEALTH = "/healthz",
        READY = "/readyz",
        METRICS = "/metrics",
        LOBBY = "/",
        WATCH = "/watch/{room}",
        ASSET = "/{asset:.+\\..+}",
    }
}

/// The whole HTTP application.
pub fn app(
    shared: web::Data<Shared>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<impl MessageBody>,
        Error = Error,
        InitError = (),
    >,
> {
    App::new()
        .app_data(shared)
        .configure(routes)
        .default_service(web::to(nothing_here))
        .wrap(from_fn(around::around))
        // Outermost: the rest sees one path for `//whip/room` and `/whip/room`.
        .wrap(NormalizePath::new(TrailingSlash::MergeOnly))
}

/// A path with its methods; any other method is answered 405 with `Allow`.
macro_rules! at {
    ($cfg:ident, $path:expr, $allow:literal, $($method:ident => $handler:expr),+ $(,)?) => {
        $cfg.service(
            resource($path, $allow)$(.route(web::$method().to($handler)))+
        );
    };
}

fn resource(path: &str, allow: &'static str) -> Resource {
    web::resource(path).default_service(web::to(move |req: HttpRequest| async move {
        Err::<String, _>(Fault::Method { method: req.method().to_string(), allow })
    }))
}

fn routes(cfg: &mut web::ServiceConfig) {
    at!(cfg, paths::WHIP, "POST, GET, HEAD, OPTIONS",
        post => whip::publish_room, get => join::no_content, head => join::no_content);
    at!(cfg, paths::WHIP_AS, "POST, GET, HEAD, OPTIONS",
        post => whip::publish_as, get => join::no_content, head => join::no_content);
    at!(cfg, paths::WHEP, "POST, GET, HEAD, OPTIONS",
        post => whep::play_room, get => join::no_content, head => join::no_content);
    at!(cfg, paths::WHEP_ONE, "POST, GET, HEAD, OPTIONS",
        post => whep::play_one, get => join::no_content, head => join::no_content);
    at!(cfg, paths::TRANSPORT, "PATCH, DELETE, OPTIONS",
        patch => transports::patch, delete => transports::end);
    at!(cfg, paths::ROOMS, "GET, POST, OPTIONS", get => rooms::list, post => rooms::create);
    at!(cfg, paths::ROOM, "GET, PATCH, DELETE, OPTIONS",
        get => rooms::read, patch => rooms::change, delete => rooms::end);
    at!(cfg, paths::EVENTS, "GET, OPTIONS", get => events::stream);
    at!(cfg, paths::SESSIONS, "GET, OPTIONS", get => sessions::list);
    at!(cfg, paths::SESSION, "GET, PATCH, DELETE, OPTIONS",
        get => sessions::read, patch => sessions::change, delete => sessions::remove);
    at!(cfg, paths::SUBSCRIPTIONS, "PATCH, OPTIONS", patch => sessions::wish);
    at!(cfg, paths::TIMELINE, "GET, OPTIONS", get => sessions::timeline);
    at!(cfg, paths::DEV_TOKEN, "POST, OPTIONS", post => dev::token);
    at!(cfg, paths::OPENAPI, "GET, HEAD, OPTIONS", get => openapi::openapi_json, head => openapi::openapi_json);
    at!(cfg, paths::HEALTH, "GET, HEAD, OPTIONS", get => ops::health, head => ops::health);
    at!(cfg, paths::READY, "GET, HEAD, OPTIONS", get => ops::ready, head => ops::ready);
    at!(cfg, paths::METRICS, "GET, OPTIONS", get => ops::metrics);
    at!(cfg, paths::LOBBY, "GET, HEAD, OPTIONS", get => page::lobby, head => page::lobby);
    at!(cfg, paths::WATCH, "GET, HEAD, OPTIONS", get => page::watch, head => page::watch);
    cfg.service(
        web::scope("")
            .wrap(Compress::default())
            .service(
                resource(paths::ASSET, "GET, HEAD, OPTIONS")
                    .route(web::get().to(page::asset))
                    .route(web::head().to(page::asset)),
            )
            .default_service(web::to(nothing_here)),
    );
}

async fn nothing_here(req: HttpRequest) -> Result<String, Fault> {
    Err(Fault::NoSuchPath(req.path().chars().take(120).collect()))
}
