//! The server's HTTP interface as a test speaks it.

use reqwest::blocking::{Client, ClientBuilder, RequestBuilder, Response};
use reqwest::{Certificate, Method, Url};
use serde_json::Value;
use std::time::Duration;

/// Where a server listens, and who asks.
#[derive(Debug, Clone)]
pub struct Api {
    base: Url,
    token: Option<String>,
    /// The one certificate that is trusted, where the address is https.
    trusted: Option<Certificate>,
    client: Client,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: String,
    /// The address asked, for relative references.
    pub url: Url,
}

impl Answer {
    fn read(response: Response) -> Self {
        let status = response.status().as_u16();
        let url = response.url().clone();
        let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        Self { status, headers, body: response.text().expect("a readable body"), url }
    }

    /// A header; several of a name are joined by a comma, as RFC 9110 §5.2 reads them.
    pub fn header(&self, name: &str) -> Option<String> {
        let all: Vec<&str> =
            self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect();
        if all.is_empty() { None } else { Some(all.join(", ")) }
    }

    /// `Location`, resolved against the address asked (RFC 9110 §10.2.2).
    pub fn location(&self) -> Option<Url> {
        self.url.join(&self.header("location")?).ok()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    /// The stable `code` of an `application/problem+json` body.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

fn client(trusted: Option<&Certificate>) -> ClientBuilder {
    // An error says that another test was first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let builder = Client::builder();
    match trusted {
        Some(certificate) => builder.add_root_certificate(certificate.clone()),
        None => builder,
    }
}

impl Api {
    /// `base`: such as `http://127.0.0.1:7880`.
    pub fn new(base: &str) -> Self {
        Self::with_trust(base, None)
    }

    /// The same over https with a server whose certificate, in PEM form, is `trusted`, and no other.
    pub fn trusting(base: &str, trusted: &str) -> Self {
        Self::with_trust(base, Some(Certificate::from_pem(trusted.as_bytes()).expect("a certificate")))
    }

    fn with_trust(base: &str, trusted: Option<Certificate>) -> Self {
        let client = client(trusted.as_ref())
            // One connection is kept, so that a test that counts the server's files counts none of its own past.
            .pool_max_idle_per_host(1)
            .timeout(Duration::from_secs(20))
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("an HTTP client");
        Self { base: Url::parse(base).expect("a base address"), token: None, trusted, client }
    }

    /// The same server, asked with an access token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// The access token, if one is sent.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// An address of this server.
    pub fn url(&self, path: &str) -> Url {
        self.base.join(path).expect("a path")
    }

    /// A request that the caller finishes; no token is added.
    pub fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Sends a request, with the token if there is one.
    pub fn send(&self, mut request: RequestBuilder) -> Answer {
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        Answer::read(request.send().expect("an answer"))
    }

    /// Whether a new connection comes up and is answered.
    pub fn reaches(&self) -> bool {
        // Of its own: one that is kept open would not ask for the certificate again.
        let client = client(self.trusted.as_ref()).pool_max_idle_per_host(0).build().expect("an HTTP client");
        client.get(self.url("/readyz")).send().is_ok_and(|answer| answer.status() == 200)
    }

    /// `GET path`.
    pub fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, self.url(path)))
    }

    /// `DELETE url`.
    pub fn delete(&self, url: &Url) -> Answer {
        self.send(self.request(Method::DELETE, url.clone()))
    }

    /// `PATCH url` with an ICE fragment.
    pub fn patch_ice(&self, url: &Url, if_match: &str, fragment: &str) -> Answer {
        let request = self.request(Method::PATCH, url.clone()).header("If-Match", if_match);
        let request = request.header("Content-Type", "application/trickle-ice-sdpfrag");
        self.send(request.body(fragment.to_owned()))
    }

    /// `POST path` with a JSON body.
    pub fn post_json(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, self.url(path)).json(body))
    }

    /// `POST path` with an SDP offer.
    pub fn post_sdp(&self, path: &str, offer: impl Into<reqwest::blocking::Body>) -> Answer {
        self.send(self.request(Method::POST, self.url(path)).header("Content-Type", "application/sdp").body(offer))
    }

    /// The same for an offer that is too large: a server may refuse it and close before it has come whole, and what
    /// is still being written then takes the answer with it. `None` where that happened.
    pub fn post_large_sdp(&self, path: &str, offer: impl Into<reqwest::blocking::Body>) -> Option<Answer> {
        let mut request =
            self.request(Method::POST, self.url(path)).header("Content-Type", "application/sdp").body(offer);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        request.send().ok().map(Answer::read)
    }

    /// A stream that has no end: only connecting is bounded in time.
    ///
    /// # Panics
    /// When the server cannot be reached or refuses.
    pub fn open_stream(&self, path: &str) -> Response {
        let client = client(self.trusted.as_ref()).connect_timeout(Duration::from_secs(5)).timeout(None);
        let client = client.build().expect("an HTTP client");
        let mut request = client.get(self.url(path)).header("Accept", "text/event-stream");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().expect("an answer");
        assert_eq!(response.status(), 200, "GET {path}");
        response
    }
}
