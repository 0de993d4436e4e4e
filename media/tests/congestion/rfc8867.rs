//! The cases of RFC 8867 §5 with layered sources, and those that are asked for besides, as one table in
//! `docs/congestion.md`.

use super::Leg;
use super::case::{Aim, CASE, Case, TcpKind, Wants};
use super::document;
use std::fmt::Write as _;

const TABLE: &str = "table of media/tests/congestion";
pub const HEAD: &str =
    "| case | use | of equal shares | queue, p95 | sound lost | switches | down | back | kbit/s of each | targets |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

const ONE: &[(u64, u64)] = &[(0, 1_000), (40, 2_500), (60, 600), (80, 1_000)];
const LONG: Case =
    Case { active: |_, second| second >= 5, tcp: TcpKind::Long, kbps: &[(0, 2_000)], wants: Wants::Nothing, ..CASE };
const LOSS: Case = Case { seconds: 60, kbps: &[(0, 20_000)], wants: Wants::Rate, ..CASE };

pub const CASES: &[Case] = &[
    Case { name: "5.1 variable capacity", seconds: 100, kbps: ONE, ..CASE },
    Case { name: "5.1 with 30 ms of jitter", seconds: 100, jitter_ms: 30, kbps: ONE, missed: &[Aim::Back], ..CASE },
    Case {
        name: "5.2 variable capacity, two flows",
        seconds: 125,
        delays_ms: &[50; 2],
        kbps: &[(0, 4_000), (25, 2_000), (50, 3_500), (75, 1_000), (100, 2_000)],
        missed: &[Aim::Use, Aim::Switches, Aim::Back],
        ..CASE
    },
    Case {
        name: "5.3 congested feedback, one flow each way",
        seconds: 100,
        delays_ms: &[50; 2],
        kbps: &[(0, 2_000), (20, 1_000), (40, 500), (60, 2_000)],
        back_kbps: &[(0, 2_000), (35, 800), (70, 2_000)],
        against: 1,
        missed: &[Aim::Down],
        ..CASE
    },
    Case {
        name: "5.4 three flows, 20 s apart",
        delays_ms: &[50; 3],
        kbps: &[(0, 3_500)],
        active: |leg, second| second >= leg as u64 * 20,
        missed: &[Aim::Switches],
        ..CASE
    },
    Case {
        name: "5.5 five flows of 10 to 150 ms one way",
        seconds: 300,
        delays_ms: &[10, 25, 50, 100, 150],
        kbps: &[(0, 4_000)],
        active: |leg, second| second >= leg as u64 * 10,
        missed: &[Aim::Use, Aim::Queue, Aim::Switches],
        ..CASE
    },
    Case { name: "5.6 beside one long TCP, queue of 20 ms", queue_ms: 20, ..LONG },
    Case { name: "5.6, queue of 300 ms", ..LONG },
    Case { name: "5.6, queue of 1,000 ms", queue_ms: 1_000, ..LONG },
    Case {
        name: "5.7 two flows beside ten short TCPs",
        seconds: 300,
        delays_ms: &[50; 2],
        kbps: &[(0, 2_000)],
        tcp: TcpKind::Short(10),
        wants: Wants::Nothing,
        ..CASE
    },
    Case {
        name: "5.8 one of three pauses for 20 s",
        delays_ms: &[50; 3],
        kbps: &[(0, 3_500)],
        active: |leg, second| leg != 0 || !(40..60).contains(&second),
        missed: &[Aim::Use, Aim::Switches],
        ..CASE
    },
    Case { name: "3 → 0.6 → 3 Mbit/s", seconds: 60, kbps: &[(0, 3_000), (20, 600), (40, 3_000)], ..CASE },
    Case { name: "3 → 0 → 3 Mbit/s", seconds: 60, kbps: &[(0, 3_000), (20, 0), (30, 3_000)], ..CASE },
    Case { name: "clean 20 Mbit/s", kbps: &[(0, 20_000)], wants: Wants::NoSwitch, ..CASE },
    Case { name: "2 % random loss", loss_permille: 20, ..LOSS },
    Case { name: "5 % random loss", loss_permille: 50, ..LOSS },
    Case { name: "10 % random loss", loss_permille: 100, ..LOSS },
];

#[test]
fn the_table_is_as_it_is_told_and_what_was_reached_stays_reached() {
    let (mut table, mut wrong) = (String::from(HEAD), String::new());
    for case in CASES {
        let measured = case.measure::<Leg>();
        let misses: Vec<Aim> = case.misses(&measured);
        if misses != case.missed {
            writeln!(wrong, "{}: misses {misses:?}, known are {:?}: {measured:?}", case.name, case.missed).unwrap();
        }
        writeln!(table, "{}", case.row(&measured)).unwrap();
    }
    let told = document::part(TABLE);
    if document::is_to_be_written() {
        document::write(TABLE, &table);
    } else {
        assert_eq!(told, table, "run once with RONDO_UPDATE_SNAPSHOTS=1, look at the difference and commit it");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// For looking at: `RONDO_CASE=5.4 cargo test --workspace --test congestion -- --nocapture trace` prints what one case does,
/// each half second: of each flow the layer, the estimate and what the path says.
#[test]
fn trace() {
    let Ok(wanted) = std::env::var("RONDO_CASE") else { return };
    let turn = std::env::var("RONDO_TURN").ok().and_then(|turn| turn.parse().ok()).unwrap_or(0);
    CASES.iter().filter(|case| case.name.starts_with(&wanted)).for_each(|case| {
        println!("{}", case.name);
        case.run(turn, |ms, legs: &[Leg], paths| {
            if ms % 500 == 0 {
                let waits = paths[0].free_at_us.saturating_sub(ms * 1_000) / 1_000;
                print!("{:6.1} {waits:4} ms", ms as f64 / 1_000.0);
                legs.iter().for_each(|leg| print!(" | {}", leg.state()));
                println!();
            }
        });
    });
}
