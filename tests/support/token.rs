//! Access tokens made by the test itself, as an application's own server makes them (interfaces §3).

use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the key pair of these tests.
pub const KEY: &str = "testkey";
/// Its secret.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// `RONDO_AUTH__KEYS` for a server that takes these tokens.
pub fn keys() -> String {
    format!("{KEY}:{SECRET}")
}

/// Seconds since 1970.
fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_secs()).expect("a clock before the year 292 billion")
}

/// A token for `identity` with the grants of `video`, which ends `valid_s` from now (negative: ended), signed with
/// `secret`.
pub fn signed(identity: &str, video: Value, valid_s: i64, secret: &str) -> String {
    let claims = json!({ "iss": KEY, "sub": identity, "nbf": now_s() - 120, "exp": now_s() + valid_s, "video": video });
    let key = EncodingKey::from_secret(secret.as_bytes()).expect("a secret");
    jsonwebtoken::encode(&Header::default(), &claims, &key).expect("a token")
}

/// A good token.
pub fn token(identity: &str, video: Value) -> String {
    signed(identity, video, 600, SECRET)
}
