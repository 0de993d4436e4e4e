//! The load tool against a whole server: what it reports is what was sent.

use crate::support::process::{self, Rondo};
use crate::support::server::TestServer;
use crate::support::token;
use crate::support::wait::poll;
use rondo_load::{Bounds, Credentials, LoadError, Media, Phase, Plan, Report, Scenario};
use serde_json::json;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;
use tokio::sync::Notify;

const SOON: Duration = Duration::from_secs(20);
const AUDIO_PER_S: f64 = 50.0;

fn plan(server: &TestServer, scenario: Scenario, rooms: usize, publishers: usize, viewers: usize) -> Plan {
    Plan {
        scenario,
        url: server.api().url("/"),
        trusted: Vec::new(),
        rooms,
        publishers,
        viewers,
        // One packet a frame, so that the number sent is a number of frames.
        media: Media { video_kbps: 200, video_bytes: 900, ..Media::default() },
        joins_per_s: 100.0,
        settle: Duration::from_millis(200),
        hold: Duration::from_secs(1),
        twcc: true,
        probes: None,
        threads: 1,
        ip: Ipv4Addr::LOCALHOST.into(),
        pid: Some(std::process::id()),
        seed: 7,
    }
}

fn run(plan: Plan) -> Result<Report, LoadError> {
    run_until(plan, std::future::pending(), |_| {})
}

fn run_until(
    plan: Plan,
    stop: impl Future<Output = ()>,
    watch: impl FnMut(&rondo_load::Progress),
) -> Result<Report, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(rondo_load::run(plan, Credentials::Development, stop, watch))
}

/// Waits until nobody is left in any room.
fn assert_left(server: &TestServer) {
    let api = server.api().with_token(&token::token("watch", json!({ "roomList": true })));
    poll("everybody has left", SOON, || {
        let rooms = api.get("/api/v1/rooms").json();
        let rooms = rooms.as_array().expect("a list of rooms");
        rooms.iter().all(|room| room["participants"].as_array().is_some_and(Vec::is_empty)).then_some(())
    });
}

#[test]
fn every_scenario_reports_what_was_sent() {
    let server = TestServer::start();
    // Rooms, publishers, viewers; each viewer's publishers, viewers in all.
    for (scenario, rooms, publishers, viewers, seen_by_each, views) in
        [(Scenario::Call, 2, 2, 0, 1, 4), (Scenario::Conference, 1, 3, 0, 2, 3), (Scenario::Live, 1, 1, 4, 1, 4)]
    {
        let plan = plan(&server, scenario, rooms, publishers, viewers);
        let joins = plan.joins();
        let frames_per_s = AUDIO_PER_S + f64::from(plan.media.video_fps);
        let report = run(plan).expect("a report");
        let (media, why) = (&report.media, format!("{scenario:?}: {report:#?}"));

        assert_eq!((report.joins.asked, report.joins.accepted, report.joins.connected), (joins, joins, joins), "{why}");
        assert_eq!((report.joins.refused.len(), report.joins.failed.len(), media.viewers), (0, 0, views), "{why}");
        // An open loop sends by the clock, however busy the machine is; a key frame asked for has five packets.
        let due = (rooms * publishers) as f64 * frames_per_s * report.hold_s;
        assert!((media.sent as f64 - due).abs() <= 0.2 * due, "{due} were due; {why}");
        // Everybody gets what the others of the room sent: of all that was sent, this many copies.
        assert_eq!(media.expected, media.sent * (views * seen_by_each / (rooms * publishers)) as u64, "{why}");
        assert_eq!((media.received, media.loss_pct), (media.expected, 0.0), "{why}");
        assert_eq!((media.duplicates, media.foreign, media.starved), (0, 0, 0), "{why}");
        assert_eq!(media.latency.count, media.received, "{why}");
        assert!(media.latency.p50_ms <= media.latency.p99_ms && media.latency.max_ms > Some(0.0), "{why}");
        assert_eq!(report.joins.times.answer.count, joins as u64, "{why}");
        assert_eq!(report.joins.times.dtls.count, joins as u64, "{why}");
        assert_eq!(report.joins.times.first_packet.count, views as u64, "{why}");
        assert!(report.server.as_ref().is_some_and(|server| server.us_per_packet > Some(0.0)), "{why}");
        assert_left(&server);
    }
}

#[test]
fn viewers_that_only_count_see_what_the_others_see() {
    let server = TestServer::start();
    let report =
        run(Plan { probes: Some(1), twcc: false, ..plan(&server, Scenario::Live, 1, 1, 4) }).expect("a report");
    let media = &report.media;
    assert_eq!((media.viewers, media.starved, media.loss_pct), (4, 0, 0.0), "{report:#?}");
    // One decrypts and knows what left inside the window; three know what came inside it.
    assert_eq!(media.latency.count, media.sent, "{report:#?}");
    assert!(media.received.abs_diff(4 * media.sent) <= media.sent / 5, "{report:#?}");
}

#[test]
fn refused_joins_are_counted_apart() {
    let server = TestServer::start_with(|config| config.limits.participants_per_room = 3);
    let report = run(plan(&server, Scenario::Live, 1, 1, 5)).expect("a report");
    assert_eq!((report.joins.asked, report.joins.accepted, report.joins.connected), (6, 3, 3), "{report:#?}");
    let refused: Vec<_> = report.joins.refused.iter().map(|r| (r.status, r.code.as_str(), r.count)).collect();
    assert_eq!(refused, [(Some(429), "room_full", 3)]);
    // And why, in the server's own words.
    let detail = &report.joins.refused[0].detail;
    assert!(!detail.is_empty() && rondo_load::summary(&report).contains(detail), "{report:#?}");
    // Who was let in is measured as ever, and who was not is no loss.
    assert_eq!((report.media.viewers, report.media.loss_pct), (2, 0.0), "{report:#?}");
    assert_eq!(report.breaches(&Bounds { lost_joins: Some(3), ..Bounds::default() }), Vec::<String>::new());
    assert_eq!(report.breaches(&Bounds { lost_joins: Some(2), ..Bounds::default() }).len(), 1);
}

/// A process whose figures can be read until it is ended.
struct Idle(std::process::Child);

impl Idle {
    fn start() -> Self {
        let cat = std::process::Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(cat.expect("cat starts"))
    }

    fn end(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn the_servers_process_is_read_while_everybody_is_there() {
    let server = TestServer::start();
    let mut process = Idle::start();
    let plan = Plan { pid: Some(process.0.id()), ..plan(&server, Scenario::Live, 1, 1, 2) };
    // From when they begin to leave there is nothing to read any more.
    let watch = |now: &rondo_load::Progress| {
        if now.phase == Phase::Leave {
            process.end();
        }
    };
    let report = run_until(plan, std::future::pending(), watch).expect("a report");
    let of_server = report.server.as_ref().unwrap_or_else(|| panic!("nothing was read: {report:#?}"));
    assert!(of_server.resident_kib > 0 && of_server.resident_kib_per_viewer.is_some(), "{of_server:?}");
}

#[test]
fn an_interrupted_run_leaves_and_reports() {
    let server = TestServer::start();
    let holding = Notify::new();
    let plan = Plan { hold: SOON * 10, ..plan(&server, Scenario::Call, 1, 2, 0) };
    let watch = |now: &rondo_load::Progress| {
        if now.phase == Phase::Hold {
            holding.notify_one();
        }
    };
    let report = run_until(plan, holding.notified(), watch).expect("a report");
    assert!(report.interrupted && report.hold_s < 20.0, "{report:#?}");
    assert_eq!((report.joins.connected, report.media.loss_pct), (4, 0.0), "{report:#?}");
    assert!(report.media.received > 0, "{report:#?}");
    assert_left(&server);
}

#[test]
fn the_command_writes_its_report_and_its_exit_code_judges() {
    let rondo = Rondo::serve(&["--dev"], &[]);
    let url = rondo.api().url("/").to_string();
    let folder = std::env::temp_dir().join(format!("rondo-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (json, html) = (folder.join("load.json"), folder.join("load.html"));
    let (json_text, html_text) = (json.to_string_lossy(), html.to_string_lossy());
    let common = ["load", "live", "--url", &url, "--viewers", "2", "--rate", "50", "--hold", "1s", "--settle", "0.2s"];
    let files = ["--json", &json_text, "--html", &html_text];
    let out = process::run(&[&common[..], &files].concat(), &[]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("3 asked, 3 accepted, 3 connected"), "{said}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("the JSON")).expect("JSON in the file");
    assert_eq!((&report["joins"]["connected"], &report["asked"]["scenario"]), (&json!(3), &json!("live")));
    assert!(std::fs::read_to_string(&html).expect("the page").contains("</svg>"));
    std::fs::remove_dir_all(&folder).expect("the folder goes");

    let out = process::run(&[&common[..], &["--max-p99-ms", "0.000001"]].concat(), &[]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("the bound is 0.000001 ms"), "{out:?}");
}

#[test]
fn what_keeps_a_load_from_running_is_a_sentence() {
    let rondo = Rondo::serve(&[], &[("RONDO_AUTH__KEYS", &token::keys())]);
    let url = rondo.api().url("/").to_string();
    let nobody = format!("http://127.0.0.1:{}", process::free_port());
    let wrong = format!("{}:{}", token::KEY, "fedcba9876543210fedcba9876543210");
    for (args, code, words) in [
        (vec!["--url", &nobody], 1, "no server answers at"),
        (vec!["--url", "here"], 2, "--url \"here\""),
        (vec!["--url", &url], 1, "give --token, or --key"),
        (vec!["--url", &url, "--key", &wrong], 1, "401"),
        (vec!["--url", &url, "--token", "x.y.z"], 1, "401"),
        (vec!["--url", &format!("{url}elsewhere/"), "--token", "x.y.z"], 1, "is it the address of a Rondo server?"),
        (vec!["--url", &url, "--pid", "4000000000"], 2, "no process 4000000000"),
        // Of a network for documentation (RFC 5737): no machine has it.
        (vec!["--url", &url, "--ip", "192.0.2.77"], 1, "--ip takes an address of this machine"),
        (vec!["--url", &url, "--threads", "100000"], 2, "more than the 64"),
        (vec!["--url", "https://127.0.0.1:1"], 2, "https takes --ca"),
        (vec!["--url", "https://127.0.0.1:1", "--ca", "/proc/self/status"], 2, "https takes --ca"),
    ] {
        let out = process::run(&[&["load", "call"], &args[..]].concat(), &[]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words) && said.starts_with("error: "), "{args:?} should say {words}: {said}");
    }
    // With a key of the server everybody gets in.
    let good =
        ["load", "call", "--url", &url, "--key", &token::keys(), "--rooms", "1", "--hold", "0.5s", "--settle", "0s"];
    let out = process::run(&[&good[..], &["--max-lost-joins", "0"]].concat(), &[]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
}
