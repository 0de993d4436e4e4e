//! The estimate on simulated paths, with everything that is between a publisher's packets and the viewer's reports: the
//! egress numbers, seals and pads, the path delays and drops, and feedback is written, sealed and read.

mod beside;
mod case;
mod document;
mod leg;
mod other;
mod path;
mod record;
mod rfc8867;
mod shared;
mod single;
mod source;
mod tcp;
#[path = "../support/viewer.rs"]
mod viewer;

use leg::Leg;
use path::Path;
use record::Record;
use std::ops::Range;
use tcp::Tcp;

/// What each layer of a source takes, in kbit/s.
const LAYERS: [u64; 3] = [150, 500, 1_700];

/// Where a viewer is, and when it is there.
pub struct Place {
    pub active: bool,
    /// Frames leave so long after those of a flow where it is 0.
    pub phase_ms: u64,
    /// Which of two ways it goes; its feedback goes the other one.
    pub way: usize,
    /// One way, in both directions, without the queue.
    pub delay_ms: u64,
}

impl Default for Place {
    fn default() -> Self {
        Self { active: true, phase_ms: 0, way: 0, delay_ms: 50 }
    }
}

/// What is sent to one viewer of a source with [`LAYERS`].
trait Flow {
    fn new(seed: u64) -> Self;

    fn place(&mut self) -> &mut Place;

    fn seen(&self) -> &Record;

    /// The source has one layer whose rate follows the estimate, up to so much.
    fn follow(&mut self, up_to_kbps: u64);

    /// One millisecond. `back`: the way of what the viewer reports.
    fn step(&mut self, ms: u64, path: &mut Path, back: &mut Path);
}

fn layered(seed: u64) -> Leg {
    Flow::new(seed)
}

/// Milliseconds of a range of seconds.
fn s(seconds: Range<u64>) -> Range<u64> {
    seconds.start * 1_000..seconds.end * 1_000
}

/// Whether a moment is within a time.
fn within(of_ms: Range<u64>) -> impl Fn(u64) -> bool {
    move |ms| of_ms.contains(&ms)
}

/// One millisecond of flows that go one of two ways each.
fn step(ms: u64, flows: &mut [impl Flow], [there, back]: &mut [Path; 2]) {
    for leg in flows {
        match leg.place().way {
            0 => leg.step(ms, there, back),
            _ => leg.step(ms, back, there),
        }
    }
}

/// Lets time go by; `change` is asked each millisecond what the path and the legs do from then on.
fn run(seconds: u64, legs: &mut [Leg], path: &mut Path, change: impl Fn(u64, &mut Path, &mut [Leg])) {
    let mut back = Path::wide();
    for ms in 0..seconds * 1_000 {
        change(ms, path, legs);
        legs.iter_mut().for_each(|leg| leg.step(ms, path, &mut back));
    }
}

/// One viewer on a path.
fn watch(seconds: u64, mut path: Path, rate_kbps: impl Fn(u64) -> u64) -> (Leg, Path) {
    let mut legs = [layered(7)];
    run(seconds, &mut legs, &mut path, |ms, path, _| path.rate_bps = rate_kbps(ms / 1_000) * 1_000);
    let [leg] = legs;
    (leg, path)
}
