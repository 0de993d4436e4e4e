//! Nothing of ours is allocated for a packet, from the socket to the socket: real clients, the real worker.
//!
//! **How ours is told apart.** While a call runs after its warm-up, this binary's allocator notes the stack of every
//! allocation on the worker's thread. An allocation belongs to the crate of the innermost function on that stack which
//! is neither the standard library's nor a container's (see [`stacks::owner`]): `Vec::push` in our code is ours, the
//! box that actix makes around a message is actix's, and so is everything in its own generic code that was compiled
//! into ours. Nothing in the product is marked or switched for this.

mod stacks;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with the other tests; this one needs a part")]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;
use support::client::{PublishOptions, Publisher, ViewOptions, Viewer};
use support::server::TestServer;

#[global_allocator]
static ALLOCATOR: stacks::Noting = stacks::Noting;

const SOON: Duration = Duration::from_secs(60);

/// The value of a counter in the server's metrics.
fn counter(server: &TestServer, name: &str) -> u64 {
    let name = format!("rondo_worker_{name}_total");
    let metrics = server.api().get("/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with(&name) && !line.starts_with('#'));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{name} is in:\n{metrics}"))
}

/// What a stretch of the call brought, and what was allocated for it.
struct Stretch {
    received: u64,
    forwarded: u64,
    noted: stacks::Noted,
}

impl Stretch {
    /// The next `sounds` audio packets of a viewer, and all else meanwhile.
    fn of(server: &TestServer, viewer: &Viewer, sounds: u64) -> Self {
        let counters = ["rtp_received", "rtp_forwarded", "rtcp_received"];
        let before = counters.map(|name| counter(server, name));
        stacks::note(true);
        let heard = viewer.stats().audio_packets;
        viewer.wait_until("more sound", SOON, |s| s.audio_packets >= heard + sounds);
        stacks::note(false);
        let after = counters.map(|name| counter(server, name));
        let [received, forwarded, reports] = std::array::from_fn(|n| after[n] - before[n]);
        assert!(received > 2 * sounds && forwarded > 6 * sounds && reports > 0, "{received}, {forwarded}, {reports}");
        let noted = stacks::take();
        assert_eq!(noted.lost, 0, "every stack is noted");
        Self { received, forwarded, noted }
    }

    /// Allocations by owner, printed.
    fn by_owner(&self) -> BTreeMap<&str, u64> {
        let mut by_owner = BTreeMap::<&str, u64>::new();
        for (owner, times, _) in &self.noted.stacks {
            *by_owner.entry(owner).or_default() += times;
        }
        for (owner, times) in &by_owner {
            let of = |packets: u64| *times as f64 / packets as f64;
            let (received, forwarded) = (of(self.received), of(self.forwarded));
            println!("{owner}: {times}, {received:.2} a received packet, {forwarded:.2} a forwarded one");
        }
        by_owner
    }
}

/// Two who publish sound and picture, three who play both. A stretch in which the machine let the worker wait may
/// bring longer batches than ever before, for which memory has to grow once; what is allocated for each packet, or for
/// each of any kind, is in every stretch.
#[test]
fn a_packet_allocates_nothing_of_ours_on_its_way_through_the_worker() {
    let server = TestServer::start();
    let api = server.api();
    let people = ["ann", "bob"].map(|name| Publisher::start(&api, "table", name, PublishOptions::default()));
    let streams: Vec<u32> = people.iter().flat_map(|p| [p.audio_stream(), p.video_stream()]).collect();
    let view = || ViewOptions { audio: 2, video: 2, ..ViewOptions::default() };
    let viewers: Vec<Viewer> = (0..3).map(|_| Viewer::start(&api, "table", view())).collect();
    for viewer in &viewers {
        // The warm-up: buffers have found their sizes, the first reports have come and gone.
        viewer.wait_for_streams(&streams, 250, SOON);
    }
    for stretch in 1..=15 {
        let of = Stretch::of(&server, &viewers[0], 200);
        let by_owner = of.by_owner();
        for library in ["actix", "str0m"] {
            assert!(by_owner.contains_key(library), "{library} allocates, and would be seen: {by_owner:?}");
        }
        if !by_owner.contains_key(stacks::OURS) {
            return;
        }
        for (owner, times, stack) in of.noted.stacks.iter().filter(|(owner, ..)| owner == stacks::OURS) {
            println!("stretch {stretch}, {times} times {owner}:\n{stack}");
        }
    }
    panic!("ours in each of fifteen stretches; their stacks stand above");
}
