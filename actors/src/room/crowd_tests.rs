//! What one message costs a full room, counted and not timed: every viewer has a turn, whatever waits.

use std::cell::Cell;

#[path = "../../tests/support/hall.rs"]
#[allow(dead_code, reason = "shared with the benches; these tests need a part")]
mod hall;

use hall::{Crowd, Hall};

thread_local! {
    /// Members that were looked up for a viewer's sake.
    pub static LOOKED_UP: Cell<usize> = const { Cell::new(0) };
}

const PEOPLE: usize = 500;

/// Members looked up for each who is in, and events read by all, while `act` goes on.
fn cost(hall: &mut Hall, act: impl FnOnce(&mut Hall)) -> (usize, usize) {
    hall.read();
    LOOKED_UP.set(0);
    act(hall);
    (LOOKED_UP.get() / PEOPLE, hall.read())
}

fn costs(publishers: usize) -> [(&'static str, usize, usize); 5] {
    let mut hall = Hall::full(Crowd { people: PEOPLE, publishers, sound: false, pairs: 1 });
    let last = publishers - 1;
    let mut costs = Vec::new();
    let mut note = |what, (looked_up, events)| costs.push((what, looked_up, events));
    note("mute one who is seen", cost(&mut hall, |hall| hall.mute(0, true)));
    note("mute one who waits", cost(&mut hall, |hall| hall.mute(last, true)));
    note("show it again", cost(&mut hall, |hall| hall.mute(last, false)));
    note("leave", cost(&mut hall, Hall::leave));
    note("come", {
        let coming = hall.coming(true);
        cost(&mut hall, |hall| hall.join(coming))
    });
    costs.try_into().unwrap_or_else(|_| unreachable!("five"))
}

#[test]
fn what_one_does_costs_a_full_room_a_few_steps_for_each_viewer_however_many_publish() {
    let many = costs(150);
    for (what, looked_up, events) in many {
        // Its sections, each track that is placed and what it takes its section from, and the news.
        assert!(looked_up <= 8, "{what}: {looked_up} members looked up for each viewer");
        assert!(events >= PEOPLE - 1, "{what}: everybody reads of it, {events} did");
    }
    assert_eq!(
        costs(15).map(|(what, looked_up, _)| (what, looked_up)),
        many.map(|(what, looked_up, _)| (what, looked_up))
    );
}
