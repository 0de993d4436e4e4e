//! What one message costs a room that is full, without its sessions: `make bench-micro`.
//!
//! One iteration is one person who mutes, leaves, comes or turns a page. Everybody in the room reads its events.

#[path = "../tests/support/hall.rs"]
mod hall;

use divan::Bencher;
use hall::{Crowd, Hall};
use std::cell::RefCell;

fn main() {
    divan::Divan::default().sample_count(60).sample_size(1).config_with_args().main();
}

/// Few publish, everybody sees one of them.
const AUDIENCE: Crowd = Crowd { people: 500, publishers: 150, sound: false, pairs: 1 };
/// Everybody publishes sound and picture, and sees 25 others.
const MEETING: Crowd = Crowd { people: 500, publishers: 500, sound: true, pairs: 25 };

const CROWDS: [&str; 2] = ["audience", "meeting"];

fn hall(crowd: &str) -> RefCell<Hall> {
    RefCell::new(Hall::full(if crowd == "audience" { AUDIENCE } else { MEETING }))
}

/// People whom everybody sees take turns: who stops gives its section to who waits longest, here the one before.
#[divan::bench(args = CROWDS)]
fn mute_one_who_is_seen(bencher: Bencher, crowd: &str) {
    let hall = hall(crowd);
    let seen = if crowd == "audience" { AUDIENCE.pairs } else { MEETING.pairs };
    let mut turn = 0;
    let next = || {
        let mut hall = hall.borrow_mut();
        if turn > 0 {
            hall.mute((turn - 1) % (seen + 1), false);
        }
        hall.read();
        turn += 1;
        (turn - 1) % (seen + 1)
    };
    bencher.with_inputs(next).bench_local_values(|person| hall.borrow_mut().mute(person, true));
}

/// Somebody who has a section nowhere: everybody misses one less.
#[divan::bench(args = CROWDS)]
fn mute_one_who_waits(bencher: Bencher, crowd: &str) {
    let hall = hall(crowd);
    let last = if crowd == "audience" { AUDIENCE.publishers } else { MEETING.publishers } - 1;
    let next = || {
        let mut hall = hall.borrow_mut();
        hall.mute(last, false);
        hall.read();
    };
    bencher.with_inputs(next).bench_local_values(|()| hall.borrow_mut().mute(last, true));
}

/// The one who has been there longest: everybody sees it.
#[divan::bench(args = CROWDS)]
fn leave(bencher: Bencher, crowd: &str) {
    let hall = hall(crowd);
    let mut gone = false;
    let next = || {
        let mut hall = hall.borrow_mut();
        if std::mem::replace(&mut gone, true) {
            let coming = hall.coming(true);
            hall.join(coming);
        }
        hall.read();
    };
    bencher.with_inputs(next).bench_local_values(|()| hall.borrow_mut().leave());
}

/// All that the room does for one who comes: two transports, an event stream, what is published.
#[divan::bench(args = CROWDS)]
fn join(bencher: Bencher, crowd: &str) {
    let hall = hall(crowd);
    let next = || {
        let mut hall = hall.borrow_mut();
        hall.leave();
        hall.read();
        hall.coming(true)
    };
    bencher.with_inputs(next).bench_local_values(|coming| hall.borrow_mut().join(coming));
}

/// A page shows 25 others: the rest is paused.
#[divan::bench(args = CROWDS)]
fn turn_a_page(bencher: Bencher, crowd: &str) {
    let hall = hall(crowd);
    let mut page = 0;
    let next = || {
        hall.borrow_mut().read();
        page = (page + 1) % 5;
        page * 25..page * 25 + 25
    };
    let last = hall.borrow().people.len() - 1;
    bencher.with_inputs(next).bench_local_values(|page| hall.borrow_mut().wish(last, Some(page)));
}
