//! The real binary: how it starts, and how it goes.

use crate::support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use crate::support::process::{self, Rondo};
use crate::support::wait::poll;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn sigterm_lets_calls_end_and_lets_nobody_in() {
    let mut rondo = Rondo::serve(&["--dev"], &[("RONDO_LIMITS__DRAIN_S", "20")]);
    let api = rondo.api();
    let ann = Publisher::start(&api, "last", "ann", PublishOptions::default());
    let bob = Viewer::start(&api, "last", ViewOptions::default());
    let streams = [ann.audio_stream(), ann.video_stream()];
    bob.wait_for_streams(&streams, 50, SOON);

    rondo.terminate();
    poll("a draining server is not ready", SOON, || (api.get("/readyz").status == 503).then_some(()));
    let refused = Publisher::try_start(&api, "last", "cid", PublishOptions::default()).err().expect("a refusal");
    assert_eq!(refused.status, 503, "{refused:#?}");
    assert!(refused.header("retry-after").is_some(), "when to try again: {refused:#?}");
    // Who is in stays in, until they leave.
    let have = bob.stats().stream(streams[0]).received;
    bob.wait_for_streams(&streams, have + 50, SOON).assert_whole();
    assert_eq!((bob.stop(), ann.stop()), (200, 200));

    let status = rondo.wait_exit(SOON);
    assert!(status.success(), "{status}");
}

#[test]
fn sigterm_ends_what_does_not_end_by_itself() {
    let mut rondo = Rondo::serve(&["--dev"], &[("RONDO_LIMITS__DRAIN_S", "1")]);
    let api = rondo.api();
    let ann = Publisher::start(&api, "stay", "ann", PublishOptions::default());
    rondo.terminate();
    let status = rondo.wait_exit(SOON);
    assert!(status.success(), "{status}");
    ann.wait_until("the server says good-bye", SOON, |s| s.closed);
}

#[test]
fn a_server_says_where_it_is() {
    let rondo = Rondo::serve(&["--dev"], &[]);
    let address = rondo.api().url("/").to_string();
    poll("the address is printed", SOON, || rondo.log().contains(address.trim_end_matches('/')).then_some(()));
}

#[test]
fn a_wrong_start_ends_with_2_and_a_sentence() {
    // interfaces §10: 2 is usage or configuration.
    for (args, env, word) in [
        (vec!["serve", "--no-such-flag"], vec![], "--no-such-flag"),
        (vec!["serve"], vec![], "auth.keys"),
        (vec!["serve", "--dev"], vec![("RONDO_MEDIA__WORKERS", "0")], "media.workers"),
        (vec!["serve", "--dev"], vec![("RONDO_HTTP__BIND", "0.0.0.0:0")], "http.bind"),
        (vec!["serve", "--config", "/no/such/file.toml"], vec![], "/no/such/file.toml"),
    ] {
        let out = process::run(&args, &env);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?} {env:?}: {said}");
        assert!(said.contains(word), "{args:?} {env:?} should name {word}: {said}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let rondo = Rondo::serve(&["--dev"], &[]);
    let taken = rondo.api().url("/");
    let bind = format!("127.0.0.1:{}", taken.port().expect("a port"));
    let out = process::run(&["serve", "--dev"], &[("RONDO_HTTP__BIND", &bind), ("RONDO_MEDIA__FIRST_PORT", "0")]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains(&bind), "{said}");
}
