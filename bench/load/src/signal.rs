//! Signalling: an offer goes (WHIP RFC 9725, WHEP draft-ietf-wish-whep), an answer comes, a resource is deleted.

use crate::run::LoadError;
use reqwest::{Client, Response, StatusCode, Url, header};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes an access token for `(room, identity)`.
pub type TokenMaker = Arc<dyn Fn(&str, &str) -> Result<String, String> + Send + Sync>;

/// How clients show who they are.
#[derive(Clone)]
pub enum Credentials {
    /// A token of the server's development mode, where it has one; else none.
    Development,
    /// The same token for everybody.
    Fixed(String),
    /// One token for each identity.
    Made(TokenMaker),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the token.
        f.write_str(match self {
            Self::Development => "Development",
            Self::Fixed(_) => "Fixed",
            Self::Made(_) => "Made",
        })
    }
}

/// A join that the server did not take.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Refused {
    /// HTTP status; none if no answer came.
    pub status: Option<u16>,
    /// The server's stable code (`code` of `application/problem+json`), or what happened instead.
    pub code: String,
    /// What the server said about it.
    #[serde(skip)]
    pub detail: String,
}

impl Refused {
    /// No answer came.
    fn unanswered(code: &str, detail: impl fmt::Display) -> Self {
        Self { status: None, code: code.to_owned(), detail: detail.to_string() }
    }

    fn from_transport(error: &reqwest::Error) -> Self {
        let code = if error.is_connect() {
            "unreachable"
        } else if error.is_timeout() {
            "timeout"
        } else {
            "broken_off"
        };
        Self::unanswered(code, innermost(error))
    }

    async fn from_answer(answer: Response) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Problem {
            code: String,
            detail: String,
        }
        let status = answer.status();
        let problem: Problem =
            answer.bytes().await.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
        let reason = status.canonical_reason().unwrap_or("unknown").to_lowercase().replace(' ', "_");
        let code = if problem.code.is_empty() { reason } else { problem.code };
        Self { status: Some(status.as_u16()), code, detail: problem.detail }
    }
}

/// The innermost cause is the system's word: "Connection refused".
fn innermost(error: &reqwest::Error) -> &dyn std::error::Error {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}

/// An accepted offer.
#[derive(Debug)]
pub struct Accepted {
    /// SDP.
    pub answer: String,
    /// What DELETE ends; none if the server named none.
    pub resource: Option<Url>,
    /// For `Authorization`.
    pub token: Option<String>,
}

/// The server's HTTP side.
#[derive(Debug, Clone)]
pub struct Doors {
    base: Url,
    client: Client,
    credentials: Credentials,
}

impl Doors {
    /// The doors at `base`. Where it is https, its certificate is one of `trusted`, or signed by one of them.
    ///
    /// # Errors
    /// When no HTTP client can be made on this machine.
    pub fn new(base: Url, trusted: RootCertStore, credentials: Credentials) -> Result<Self, LoadError> {
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let tls = tls.with_safe_default_protocol_versions().map_err(|error| LoadError::Machine(error.to_string()))?;
        let tls = tls.with_root_certificates(trusted).with_no_client_auth();
        // A proxy of the environment is for the internet, not for the server under load.
        let client = Client::builder().no_proxy().timeout(TIMEOUT).use_preconfigured_tls(tls).build();
        let client = client.map_err(|error| LoadError::Machine(innermost(&error).to_string()))?;
        Ok(Self { base, client, credentials })
    }

    fn at(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Only addresses that cannot be a base have no path; `Plan::check` takes http and https alone.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// The token of `identity` in `room`.
    ///
    /// # Errors
    /// What was said instead.
    pub async fn token(&self, room: &str, identity: &str) -> Result<Option<String>, Refused> {
        match &self.credentials {
            Credentials::Fixed(token) => Ok(Some(token.clone())),
            Credentials::Made(make) => {
                make(room, identity).map(Some).map_err(|why| Refused::unanswered("no_token", why))
            }
            Credentials::Development => self.development_token(room, identity).await,
        }
    }

    async fn development_token(&self, room: &str, identity: &str) -> Result<Option<String>, Refused> {
        #[derive(Serialize)]
        struct Asked<'a> {
            room: &'a str,
            identity: &'a str,
        }
        #[derive(Deserialize)]
        struct Given {
            token: String,
        }
        // Plain values always become JSON.
        let body = serde_json::to_vec(&Asked { room, identity }).unwrap_or_default();
        let url = self.at(&["api", "v1", "dev", "token"]);
        let request = self.client.post(url).header(header::CONTENT_TYPE, "application/json").body(body);
        let answer = request.send().await.map_err(|error| Refused::from_transport(&error))?;
        match answer.status() {
            StatusCode::OK => {
                let body = answer.bytes().await.map_err(|error| Refused::from_transport(&error))?;
                Ok(serde_json::from_slice::<Given>(&body).ok().map(|given| given.token))
            }
            // No development mode, or no server of ours: come as a guest, and hear what it says to that.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(None),
            _ => Err(Refused::from_answer(answer).await),
        }
    }

    /// Posts an offer to `door` (`whip`, `whep`) of `room`.
    ///
    /// # Errors
    /// Status and code of an answer other than 201, or why none came.
    pub async fn offer(
        &self,
        door: &str,
        room: &str,
        token: Option<String>,
        offer: String,
    ) -> Result<Accepted, Refused> {
        let url = self.at(&[door, room]);
        let mut request = self.client.post(url.clone()).header(header::CONTENT_TYPE, "application/sdp").body(offer);
        if let Some(token) = &token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.map_err(|error| Refused::from_transport(&error))?;
        if answer.status() != StatusCode::CREATED {
            return Err(Refused::from_answer(answer).await);
        }
        let location = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let resource = location.and_then(|location| url.join(location).ok());
        let answer = answer.text().await.map_err(|error| Refused::from_transport(&error))?;
        Ok(Accepted { answer, resource, token })
    }

    /// Deletes a resource; true if the server agreed.
    pub async fn delete(&self, resource: Url, token: Option<String>) -> bool {
        let mut request = self.client.delete(resource);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.is_ok_and(|answer| answer.status().is_success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_base_is_kept_and_names_are_escaped() {
        let at = |base: &str| {
            Doors::new(base.parse().unwrap(), RootCertStore::empty(), Credentials::Development)
                .unwrap()
                .at(&["whip", "a b"])
                .to_string()
        };
        assert_eq!(at("http://127.0.0.1:7880"), "http://127.0.0.1:7880/whip/a%20b");
        assert_eq!(at("http://127.0.0.1/media/"), "http://127.0.0.1/media/whip/a%20b");
    }

    #[test]
    fn tokens_are_not_printed() {
        let made = Credentials::Made(Arc::new(|_, _| Ok("secret".to_owned())));
        assert_eq!(format!("{:?} {made:?}", Credentials::Fixed("secret".to_owned())), "Fixed Made");
    }
}
