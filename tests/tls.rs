//! HTTP with TLS: a call over it, a certificate that is renewed meanwhile, and files that cannot be used.

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::events::Events;
use crate::support::http::Api;
use crate::support::process::{self, Rondo};
use crate::support::wait::poll;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// A folder with the two files, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rondo-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path of letters").to_owned()
    }

    /// A server with a certificate that ends in 2100, written here.
    fn serve(&self, more: &[(&str, &str)]) -> Rondo {
        let (cert, key) = certificate(2100);
        self.write("cert.pem", &cert);
        self.write("key.pem", &key);
        let files = self.env();
        let files = files.iter().map(|(name, value)| (*name, value.as_str()));
        let env: Vec<(&str, &str)> = files.chain(more.iter().copied()).collect();
        Rondo::serve_tls(&["--dev"], &env, &cert)
    }

    fn write(&self, name: &str, contents: &str) {
        std::fs::write(self.0.join(name), contents).expect("a file");
    }

    fn env(&self) -> [(&'static str, String); 2] {
        [("RONDO_HTTP__TLS_CERT", self.file("cert.pem")), ("RONDO_HTTP__TLS_KEY", self.file("key.pem"))]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed lies in the folder of temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A certificate for 127.0.0.1 that ends in `year`, and its key, in PEM form.
fn certificate(year: i32) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

#[test]
fn a_call_goes_on_while_the_certificate_is_renewed() {
    let folder = Folder::new("renewed");
    let rondo = folder.serve(&[]);
    let api = rondo.api();
    assert!(rondo.log().contains("https://127.0.0.1"), "a person is told https: {}", rondo.log());
    let expiry = || {
        let metrics = api.get("/metrics").body;
        let line = metrics.lines().find_map(|l| l.strip_prefix("rondo_tls_certificate_expiry_seconds "));
        line.and_then(|value| value.parse::<u64>().ok())
    };
    // 2100-01-01 and 2101-01-01, UTC.
    assert_eq!(expiry(), Some(4_102_444_800));

    let ann = Publisher::start(&api, "tls", "ann", PublishOptions::default());
    let bob = Viewer::start(&api, "tls", ViewOptions::default());
    let streams = [ann.audio_stream(), ann.video_stream()];
    bob.wait_for_streams(&streams, 50, SOON).assert_whole();
    let events = Events::open(&api, "tls");

    let (second, second_key) = certificate(2101);
    let of_second = Api::trusting(api.url("/").as_str(), &second);
    assert!(!of_second.reaches(), "it is not in use yet");
    // Half a renewal: key and certificate do not belong together, so nothing changes.
    folder.write("cert.pem", &second);
    rondo.hang_up();
    poll("the log says why", SOON, || rondo.log().contains("http.tls_key").then_some(()));
    assert!(api.reaches() && !of_second.reaches());
    folder.write("key.pem", &second_key);
    rondo.hang_up();
    poll("a new connection sees the new certificate", SOON, || of_second.reaches().then_some(()));
    assert!(!api.reaches(), "and the old one no more");

    // What was open goes on: the stream of events, and with it the call.
    let cid = Publisher::start(&of_second, "tls", "cid", PublishOptions::default());
    events.wait_for("participant_joined", SOON, |event| event["participant"]["identity"] == "cid");
    let have = bob.stats().stream(streams[0]).received;
    bob.wait_for_streams(&streams, have + 50, SOON).assert_whole();
    let metrics = of_second.get("/metrics").body;
    for line in [
        "rondo_tls_certificate_expiry_seconds 4133980800",
        "rondo_tls_reloads_total 1",
        "rondo_tls_reload_failures_total 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    assert_eq!(cid.stop(), 200);
}

#[test]
fn a_load_goes_over_https_to_a_server_whose_certificate_is_named() {
    let folder = Folder::new("load");
    let rondo = folder.serve(&[]);
    let url = rondo.api().url("/").to_string();
    let load = ["load", "call", "--rooms", "1", "--hold", "0.5s", "--settle", "0s", "--url", &url, "--ca"];
    let cert = folder.file("cert.pem");
    let out = process::run(&[&load[..], &[&cert, "--max-lost-joins", "0"]].concat(), &[]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    // Nobody else's.
    folder.write("other.pem", &certificate(2100).0);
    let out = process::run(&[&load[..], &[&folder.file("other.pem")]].concat(), &[]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(said.contains("invalid peer certificate") && said.contains("--ca"), "{said}");
}

#[test]
fn files_that_change_are_read_again_without_a_signal() {
    let folder = Folder::new("watched");
    let rondo = folder.serve(&[]);
    let (second, second_key) = certificate(2101);
    folder.write("cert.pem", &second);
    folder.write("key.pem", &second_key);
    let of_second = Api::trusting(rondo.api().url("/").as_str(), &second);
    // Looked at every 10 s, and taken when the files stood still for one look.
    poll("the new certificate is in use", Duration::from_secs(60), || of_second.reaches().then_some(()));
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_cure() {
    let folder = Folder::new("wrong");
    let (cert, key) = certificate(2100);
    let (_, other_key) = certificate(2100);
    folder.write("cert.pem", &cert);
    folder.write("key.pem", &key);
    folder.write("other.pem", &other_key);
    folder.write("empty.pem", "");
    folder.write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    folder.write("half.pem", &format!("{cert}-----BEGIN CERTIFICATE-----\nAAAA\n"));
    folder.write("chain.pem", &format!("{cert}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"));
    folder.write("locked.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    for (cert, key, words) in [
        ("cert.pem", "", ["http.tls_cert is set and http.tls_key is not", "both"]),
        ("", "key.pem", ["http.tls_key is set and http.tls_cert is not", "both"]),
        ("none.pem", "key.pem", ["http.tls_cert", "none.pem"]),
        ("cert.pem", "none.pem", ["http.tls_key", "none.pem"]),
        ("empty.pem", "key.pem", ["http.tls_cert", "holds no certificate"]),
        ("key.pem", "cert.pem", ["http.tls_cert", "it holds a key"]),
        ("cert.pem", "cert.pem", ["http.tls_key", "it holds a certificate"]),
        ("cert.pem", "locked.pem", ["http.tls_key", "without a passphrase"]),
        ("broken.pem", "key.pem", ["http.tls_cert", "certificate 1 of it is broken"]),
        ("half.pem", "key.pem", ["http.tls_cert", "certificate 2 of it is broken"]),
        ("chain.pem", "key.pem", ["http.tls_cert", "certificate 2 of it is broken"]),
        ("cert.pem", "other.pem", ["http.tls_key", "is not the one of the first certificate"]),
    ] {
        let files = [("RONDO_HTTP__TLS_CERT", cert), ("RONDO_HTTP__TLS_KEY", key)];
        let files: Vec<(&str, String)> =
            files.iter().filter(|(_, name)| !name.is_empty()).map(|(var, name)| (*var, folder.file(name))).collect();
        let mut env: Vec<(&str, &str)> = files.iter().map(|(var, path)| (*var, path.as_str())).collect();
        env.push(("RONDO_HTTP__BIND", "127.0.0.1:0"));
        env.push(("RONDO_MEDIA__FIRST_PORT", "0"));
        for command in ["serve", "check-config", "doctor"] {
            let out = process::run(&[command, "--dev"], &env);
            let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            // Interfaces §10: 2 is a configuration that cannot be used; a doctor who found something says 1.
            let code = if command == "doctor" { 1 } else { 2 };
            assert_eq!(out.status.code(), Some(code), "{command} {cert} {key}: {said}");
            for word in words {
                assert!(said.contains(word), "{command} {cert} {key}: no {word:?} in: {said}");
            }
        }
    }
}

#[test]
fn who_speaks_http_to_https_or_never_finishes_a_handshake_is_let_go() {
    let folder = Folder::new("clear");
    let rondo = folder.serve(&[("RONDO_LIMITS__HEADER_READ_S", "1")]);
    let api = rondo.api();
    let url = api.url("/");
    let addr = format!("127.0.0.1:{}", url.port().expect("a port"));
    for first_words in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""] {
        let mut stream = TcpStream::connect(&addr).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        stream.write_all(first_words.as_bytes()).expect("written");
        let mut answer = Vec::new();
        // Closed or reset; in neither case is there a page.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&answer));
    }
    assert!(api.reaches());
}
