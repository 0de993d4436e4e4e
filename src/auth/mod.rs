//! Who somebody is: access tokens (HS256 JWT with LiveKit's claims) → [`Grants`]. What they may do: [`acts`].

mod acts;

pub use acts::{Act, Caller, Denied, Target, allowed};

use crate::config::{Keys, Secret};
use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use rondo_actors::api::Source;
use rondo_media::ids::{BadName, Identity};
use serde::{Deserialize, Serialize};

/// Clock difference between issuer and server that is forgiven, in seconds (LiveKit's).
const LEEWAY_S: u64 = 60;

/// Claims of a token. Unknown ones are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// API key; chooses the secret.
    pub iss: String,
    /// Identity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sub: String,
    /// Identity where `sub` is absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    /// Not before, in seconds since 1970. Read by the check itself, fractions included.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// Expires, in seconds since 1970. Mandatory.
    #[serde(deserialize_with = "numeric_date")]
    pub exp: u64,
    /// Name to show.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it allows in rooms.
    #[serde(default)]
    pub video: VideoClaim,
    /// What it allows of this server.
    #[serde(default, skip_serializing_if = "RondoClaim::is_empty")]
    pub rondo: RondoClaim,
}

/// The `video` claim. `canPublish` and `canSubscribe` are true where absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VideoClaim {
    /// May open rooms.
    #[serde(skip_serializing_if = "is_false")]
    pub room_create: bool,
    /// May list rooms and read sessions.
    #[serde(skip_serializing_if = "is_false")]
    pub room_list: bool,
    /// May change `room` and everybody in it.
    #[serde(skip_serializing_if = "is_false")]
    pub room_admin: bool,
    /// May join `room`.
    #[serde(skip_serializing_if = "is_false")]
    pub room_join: bool,
    /// The room that `roomJoin` and `roomAdmin` are about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub room: String,
    /// May publish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_publish: Option<bool>,
    /// May play.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_subscribe: Option<bool>,
    /// `camera`, `microphone`, `screen_share`, `screen_share_audio`; empty is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub can_publish_sources: Vec<String>,
}

/// The `rondo` claim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RondoClaim {
    /// May administer the whole server.
    #[serde(skip_serializing_if = "is_false")]
    pub admin: bool,
}

impl RondoClaim {
    fn is_empty(&self) -> bool {
        !self.admin
    }
}

/// A `NumericDate` may have a fraction (RFC 7519 §2).
fn numeric_date<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    // A float beyond the range of u64 saturates, which is right for a time.
    Ok(f64::deserialize(from)? as u64)
}

/// The one claim that is read before the signature is checked.
#[derive(Deserialize)]
struct Issuer {
    iss: String,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What a valid token allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    /// API key that signed it.
    pub key: String,
    /// Who; absent in tokens of servers.
    pub identity: Option<Identity>,
    /// Name to show.
    pub name: Option<String>,
    /// Room of `join` and `room_admin`.
    pub room: Option<String>,
    /// `roomJoin`
    pub join: bool,
    /// `canPublish`
    pub publish: bool,
    /// `canSubscribe`
    pub subscribe: bool,
    /// `canPublishSources`; `None` is all.
    pub sources: Option<Vec<Source>>,
    /// `roomCreate`
    pub create: bool,
    /// `roomList`
    pub list: bool,
    /// `roomAdmin`
    pub room_admin: bool,
    /// `rondo.admin`
    pub admin: bool,
}

/// Why a token was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a JWT, or claims of the wrong shape.
    #[error("it is not a JWT with the claims iss and exp")]
    Malformed,
    /// Signed by a key that this server does not have.
    #[error("its issuer (claim iss) is not an API key of this server")]
    UnknownKey,
    /// Wrong signature, or not HS256.
    #[error("its signature is not right: it must be HS256 with the secret of its API key")]
    BadSignature,
    /// `exp` is over.
    #[error("it has expired (claim exp)")]
    Expired,
    /// `nbf` is to come.
    #[error("it is not valid yet (claim nbf); is the clock of its issuer right?")]
    NotYet,
    /// Its identity is not a name.
    #[error("its identity (claim sub) {0}")]
    BadIdentity(BadName),
    /// The server cannot sign with this key.
    #[error("it cannot be signed with this secret")]
    Unsignable,
}

/// The keys of this server, and whether guests are let in.
pub struct Auth {
    keys: Keys,
    /// Development mode.
    pub dev: bool,
}

impl Auth {
    /// `keys`: those that tokens are checked with.
    pub fn new(keys: Keys, dev: bool) -> Self {
        Self { keys, dev }
    }

    /// Checks a token: signature first (in constant time), then `exp` and `nbf` with 60 s leeway.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, token: &str) -> Result<Grants, TokenError> {
        // The issuer is only believed once the signature made with its secret has been verified.
        let Issuer { iss } = insecure_decode_claims(token).map_err(|_| TokenError::Malformed)?;
        let secret = self.keys.0.get(&iss).ok_or(TokenError::UnknownKey)?;
        let key = DecodingKey::from_secret(secret.as_bytes()).map_err(|_| TokenError::BadSignature)?;
        let mut rules = Validation::new(Algorithm::HS256);
        rules.leeway = LEEWAY_S;
        rules.validate_nbf = true;
        rules.validate_aud = false;
        let claims = jsonwebtoken::decode::<Claims>(token, &key, &rules).map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => TokenError::Expired,
            ErrorKind::ImmatureSignature => TokenError::NotYet,
            ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => TokenError::BadSignature,
            // The library's enum may grow; what is left is about the shape.
            _ => TokenError::Malformed,
        })?;
        Grants::of(claims.claims)
    }

    /// Signs claims with one of the server's keys: the named one, or the first.
    ///
    /// # Errors
    /// `UnknownKey` if there is none.
    pub fn sign(&self, key: Option<&str>, claims: Claims) -> Result<String, TokenError> {
        let (key, secret): (&str, &Secret) = match key {
            Some(key) => (key, self.keys.0.get(key).ok_or(TokenError::UnknownKey)?),
            None => self.keys.0.iter().next().map(|(k, s)| (k.as_str(), s)).ok_or(TokenError::UnknownKey)?,
        };
        let signing = EncodingKey::from_secret(secret.as_bytes()).map_err(|_| TokenError::Unsignable)?;
        let claims = Claims { iss: key.to_owned(), ..claims };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &signing).map_err(|_| TokenError::Unsignable)
    }
}

impl Grants {
    fn of(claims: Claims) -> Result<Self, TokenError> {
        let some = |text: String| (!text.is_empty()).then_some(text);
        let identity = some(claims.sub).or(some(claims.jti));
        let video = claims.video;
        let sources: Vec<Source> = video.can_publish_sources.iter().filter_map(|name| source(name)).collect();
        Ok(Self {
            key: claims.iss,
            identity: identity.map(|text| text.parse()).transpose().map_err(TokenError::BadIdentity)?,
            name: some(claims.name),
            room: some(video.room),
            join: video.room_join,
            publish: video.can_publish.unwrap_or(true),
            subscribe: video.can_subscribe.unwrap_or(true),
            // Names this server does not know allow nothing, which is not the same as an empty list.
            sources: (!video.can_publish_sources.is_empty()).then_some(sources),
            create: video.room_create,
            list: video.room_list,
            room_admin: video.room_admin,
            admin: claims.rondo.admin,
        })
    }
}

/// LiveKit's name of a source in `canPublishSources`.
fn source(name: &str) -> Option<Source> {
    match name {
        "camera" => Some(Source::Camera),
        "microphone" => Some(Source::Microphone),
        "screen_share" => Some(Source::Screen),
        "screen_share_audio" => Some(Source::ScreenAudio),
        _ => None,
    }
}

/// Seconds since 1970.
pub fn unix_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn auth() -> Auth {
        Auth::new(Config::dev().effective_keys(), true)
    }

    fn claims(json: serde_json::Value) -> Claims {
        serde_json::from_value(json).unwrap()
    }

    fn in_an_hour() -> u64 {
        unix_s() + 3600
    }

    #[test]
    fn a_token_made_elsewhere_is_read() {
        // Header and claims typed by hand, signature by `openssl dgst -sha256 -hmac secret`:
        // {"alg":"HS256"} . {"iss":"devkey","sub":"ann","exp":4102444800,"video":{"roomJoin":true,"room":"r"}}
        let token = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJkZXZrZXkiLCJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsInZpZGVvIjp7InJvb21Kb2luIjp0cnVlLCJyb29tIjoiciJ9fQ.iZ8T93BmWeqeoYakjMlAcK1EkcHcOmPUB0e0FSWlvqA";
        let grants = auth().check(token).unwrap();
        assert_eq!(grants.identity.unwrap().as_str(), "ann");
        assert_eq!((grants.join, grants.publish, grants.subscribe, grants.sources), (true, true, true, None));
        assert_eq!((grants.create, grants.list, grants.room_admin, grants.admin), (false, false, false, false));
        assert_eq!(grants.room.as_deref(), Some("r"));
    }

    #[test]
    fn claims_become_grants() {
        let token = auth()
            .sign(
                None,
                claims(serde_json::json!({
                    "iss": "", "jti": "bob", "exp": in_an_hour(), "name": "Bob", "kind": "standard", "unknown": [1],
                    "video": { "canPublish": false, "canPublishSources": ["camera", "screen_share", "tv"], "hidden": true },
                    "rondo": { "admin": true }
                })),
            )
            .unwrap();
        let grants = auth().check(&token).unwrap();
        assert_eq!(grants.identity.unwrap().as_str(), "bob");
        assert_eq!((grants.publish, grants.subscribe, grants.admin), (false, true, true));
        assert_eq!(grants.sources, Some(vec![Source::Camera, Source::Screen]));
        assert_eq!((grants.name.as_deref(), grants.key.as_str()), (Some("Bob"), "devkey"));
    }

    #[test]
    fn times_have_sixty_seconds_of_leeway() {
        let sign = |exp: u64, nbf: Option<u64>| {
            let token = auth().sign(None, Claims { exp, nbf, ..Claims::default() }).unwrap();
            auth().check(&token).map(|_| ())
        };
        assert_eq!(sign(unix_s() - 30, None), Ok(()));
        assert_eq!(sign(unix_s() - 90, None), Err(TokenError::Expired));
        assert_eq!(sign(in_an_hour(), Some(unix_s() + 30)), Ok(()));
        assert_eq!(sign(in_an_hour(), Some(unix_s() + 120)), Err(TokenError::NotYet));
    }

    #[test]
    fn what_is_no_token_is_refused_with_the_reason() {
        let check = |token: &str| auth().check(token).unwrap_err();
        for junk in ["", "nope", "a.b.c", "..", "eyJhbGciOiJIUzI1NiJ9.e30."] {
            assert_eq!(check(junk), TokenError::Malformed, "{junk}");
        }
        let other = Auth::new(Keys([("other".to_owned(), Secret::new("x"))].into()), false);
        let exp = in_an_hour();
        let foreign = other.sign(None, Claims { exp, ..Claims::default() }).unwrap();
        assert_eq!(check(&foreign), TokenError::UnknownKey);
        let forged = Auth::new(Keys([("devkey".to_owned(), Secret::new("guess"))].into()), false);
        assert_eq!(check(&forged.sign(None, Claims { exp, ..Claims::default() }).unwrap()), TokenError::BadSignature);

        let sign = |alg, claims: serde_json::Value| {
            let key = EncodingKey::from_secret(b"secret").unwrap();
            jsonwebtoken::encode(&Header::new(alg), &claims, &key).unwrap()
        };
        let no_exp = sign(Algorithm::HS256, serde_json::json!({ "iss": "devkey" }));
        assert_eq!(check(&no_exp), TokenError::Malformed);
        let hs512 = sign(Algorithm::HS512, serde_json::json!({ "iss": "devkey", "exp": exp }));
        assert_eq!(check(&hs512), TokenError::BadSignature);
        let spaced = sign(Algorithm::HS256, serde_json::json!({ "iss": "devkey", "exp": exp, "sub": "a b" }));
        assert_eq!(check(&spaced), TokenError::BadIdentity(BadName::Char(' ')));
        // {"alg":"none"} with no signature.
        let none = format!("eyJhbGciOiJub25lIn0.{}.", hs512.split('.').nth(1).unwrap());
        assert!(auth().check(&none).is_err());
        // One bit of the signature changed.
        let good = sign(Algorithm::HS256, serde_json::json!({ "iss": "devkey", "exp": exp }));
        let last = if good.ends_with('A') { 'Q' } else { 'A' };
        let flipped = format!("{}{last}", &good[..good.len() - 1]);
        assert_ne!(auth().check(&flipped).map(|_| ()), Ok(()));
        assert!(auth().check(&good).is_ok());
    }
}
