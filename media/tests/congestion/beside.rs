//! Our estimate beside that of str0m, on the same paths with the same source and the same rule for layers.

use super::case::Case;
use super::document;
use super::other::Other;
use super::rfc8867::{CASES, HEAD};
use super::{Flow, Leg};
use std::fmt::Write as _;

const TABLE: &str = "table of another estimator";
/// Those whose estimates are drawn.
const DRAWN: [&str; 4] = ["3 → 0.6 → 3 Mbit/s", "5.1 variable capacity", "5.1 with 30 ms of jitter", "2 % random loss"];
/// A source that follows the estimate sends no more than so many kbit/s.
const FOLLOWS_UP_TO: u64 = 2_500;
const FOLLOWING: &str = "table of sources that follow";
const FOLLOWING_HEAD: &str = "| case | sent, of what it could | queue, p95 | sound lost |
| --- | --- | --- | --- |
";
/// A plot, in pixels, and what is around it.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 50.0;
const ABOVE: f64 = 30.0;
const EACH: f64 = HEIGHT + 60.0;

fn named(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).expect("there is such a case")
}

/// A case with a source that follows the estimate, as a camera's encoder does: nothing but the estimate decides.
fn followed(name: &str) -> Case {
    Case { follows_up_to: Some(FOLLOWS_UP_TO), ..*named(name) }
}

/// What one flow's estimate was, in kbit/s by tenths of a second.
fn estimates<F: Flow>(case: &Case) -> Vec<u64> {
    let (legs, ..) = case.run::<F>(0, |_, _, _| {});
    legs[0].seen().tenths.iter().map(|tenth| tenth.target_kbps).collect()
}

/// Of a source that follows: what it sent in percent of what it could, from 5 s after each change, and the queue from 2 s on.
fn row_of_one_that_follows<F: Flow>(case: &Case, who: &str) -> String {
    let (legs, paths, _) = case.run::<F>(0, |_, _, _| {});
    let seen = legs[0].seen();
    let steady = (0..case.seconds).filter(|second| case.rests(*second, 5));
    let (sent, could) = steady.fold((0, 0), |(sent, could), second| {
        let most = case.path_kbps(second).min(FOLLOWS_UP_TO + 40);
        (sent + seen.media_kbps(second * 1_000..(second + 1) * 1_000).min(most), could + most)
    });
    let settled = |ms: u64| case.rests(ms / 1_000, 2);
    let lost = seen.sound_lost_permille(settled);
    let (p95_ms, name) = (paths[0].p95_wait_ms(settled), case.name);
    format!("| {name}: {who} | {} % | {p95_ms} ms | {}.{} % |", sent * 100 / could, lost / 10, lost % 10)
}

/// Their estimates over time, and what the path takes.
fn drawing() -> String {
    let height = ABOVE + EACH * DRAWN.len() as f64;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{height}' viewBox='0 0 {0} {height}' \
         font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n",
        LEFT + WIDTH + 20.0
    );
    let curves = [("path", "#999"), ("Rondo", "#0a7d4f"), ("str0m", "#c2410c")];
    for (n, (name, colour)) in curves.iter().enumerate() {
        let x = LEFT + 70.0 + 90.0 * n as f64;
        writeln!(svg, "<text x='{x}' y='16' fill='{colour}'>{name}</text>").unwrap();
    }
    for (n, name) in DRAWN.iter().enumerate() {
        let case = &followed(name);
        let top = ABOVE + 20.0 + EACH * n as f64;
        let most = case.kbps.iter().map(|(_, kbps)| *kbps).max().unwrap_or(1).min(4_500) as f64 * 1.1;
        let (last, tenths) = (case.seconds as f64, case.seconds * 10);
        let place = |tenth: u64, kbps: u64| {
            let share = (kbps as f64 / most).min(1.0);
            format!("{:.1},{:.1} ", LEFT + tenth as f64 / tenths as f64 * WIDTH, top + HEIGHT * (1.0 - share))
        };
        writeln!(svg, "<text x='{LEFT}' y='{}'>{name}</text>", top - 6.0).unwrap();
        writeln!(svg, "<rect x='{LEFT}' y='{top}' width='{WIDTH}' height='{HEIGHT}' fill='none' stroke='#ddd'/>")
            .unwrap();
        for kbps in (0..=most as u64).step_by(1_000) {
            let y = top + HEIGHT * (1.0 - kbps as f64 / most);
            writeln!(svg, "<text x='{}' y='{:.1}' text-anchor='end'>{}</text>", LEFT - 6.0, y + 4.0, kbps / 1_000)
                .unwrap();
        }
        for second in (0..=case.seconds).step_by(20) {
            let x = LEFT + second as f64 / last * WIDTH;
            let y = top + HEIGHT + 16.0;
            writeln!(svg, "<text x='{x:.1}' y='{y}' text-anchor='middle'>{second} s</text>").unwrap();
        }
        let path: Vec<u64> = (0..tenths).map(|tenth| case.path_kbps(tenth / 10)).collect();
        for ((_, colour), rates) in curves.iter().zip([path, estimates::<Leg>(case), estimates::<Other>(case)]) {
            let points: String = rates.iter().enumerate().map(|(tenth, kbps)| place(tenth as u64, *kbps)).collect();
            writeln!(svg, "<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.3'/>").unwrap();
        }
    }
    svg + "<text x='12' y='16'>Mbit/s:</text>\n</svg>\n"
}

/// The comparison compares: the other one sends, finds the best layer where nothing is in its way, and follows a path.
#[test]
fn the_other_estimator_does_its_work_too() {
    let clean = named("clean 20 Mbit/s").measure_turn::<Other>(0);
    assert!(clean.use_percent >= 95, "{clean:?}");
    let narrows = named(DRAWN[0]).measure_turn::<Other>(0);
    assert!(narrows.down_ms.is_some_and(|ms| ms <= 2_000) && narrows.back_ms < Some(10_000), "{narrows:?}");
}

/// The whole comparison takes minutes and is no test: it is written when documents are.
#[test]
fn the_comparison_is_told() {
    assert!(document::part(TABLE).starts_with(HEAD));
    if !document::is_to_be_written() {
        return;
    }
    let mut table = String::from(HEAD);
    for case in CASES {
        for row in
            [case.row_of("Rondo", &case.measure_turn::<Leg>(0)), case.row_of("str0m", &case.measure_turn::<Other>(0))]
        {
            writeln!(table, "{row}").unwrap();
        }
    }
    document::write(TABLE, &table);
    let mut table = String::from(FOLLOWING_HEAD);
    for case in DRAWN.map(followed) {
        writeln!(table, "{}", row_of_one_that_follows::<Leg>(&case, "Rondo")).unwrap();
        writeln!(table, "{}", row_of_one_that_follows::<Other>(&case, "str0m")).unwrap();
    }
    document::write(FOLLOWING, &table);
    std::fs::write(document::folder().join("congestion/estimators.svg"), drawing()).unwrap();
}
