//! The estimate on simulated paths, with everything that is between a publisher's packets and the viewer's reports: the
//! egress numbers, seals and pads, the path delays and drops, and feedback is written, sealed and read.

mod case;
mod leg;
mod path;
mod rfc8867;
mod shared;
mod single;
mod tcp;
#[path = "../support/viewer.rs"]
mod viewer;

use leg::Leg;
use path::Path;
use std::ops::Range;
use tcp::Tcp;

/// What each layer of a source takes, in kbit/s.
const LAYERS: [u64; 3] = [150, 500, 1_700];

/// A viewer of a layered source.
fn layered(seed: u64) -> Leg {
    Leg::new(&viewer::sections(), &LAYERS, seed)
}

/// Milliseconds of a range of seconds.
fn s(seconds: Range<u64>) -> Range<u64> {
    seconds.start * 1_000..seconds.end * 1_000
}

/// Whether a moment is within a time.
fn within(of_ms: Range<u64>) -> impl Fn(u64) -> bool {
    move |ms| of_ms.contains(&ms)
}

/// One millisecond of legs that go one of two ways each.
fn step(ms: u64, legs: &mut [Leg], [there, back]: &mut [Path; 2]) {
    for leg in legs {
        match leg.way {
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
