//! What a packet costs in a worker's tables, without its socket: `make bench-micro`.
//!
//! One iteration is one packet or one timer, unless the name says otherwise. Allocations are printed where there are any.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use std::net::SocketAddr;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// Viewers on one worker.
const VIEWERS: u32 = 600;

fn main() {
    // Fewer iterations a sample are below the timer's precision.
    divan::Divan::default().sample_size(100).config_with_args().main();
}

fn viewer(n: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 40_000))
}

/// Neighbours in time are no neighbours in the table. 7 and 600 have no common factor, so everybody has a turn.
fn next(n: u32) -> u32 {
    (n + 7) % VIEWERS
}

mod demux {
    use super::*;
    use rondo_actors::worker::demux::{Demux, Route};

    fn route(n: u32) -> Route {
        Route { slot: n, transport: 0 }
    }

    /// RFC 8489 §5: a binding request; USERNAME of 9 bytes, padded to 12.
    fn request(n: u32) -> Vec<u8> {
        let mut message = vec![0, 1, 0, 16, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 6, 0, 9];
        message.extend(format!("{n:04}:them\0\0\0").bytes());
        message
    }

    fn table() -> Demux {
        let mut demux = Demux::new(VIEWERS as usize);
        for n in 0..VIEWERS {
            demux.add(&format!("{n:04}"), route(n)).unwrap();
            assert_eq!(demux.route(viewer(n), &request(n)), Ok(route(n)));
            assert!(demux.confirm(viewer(n), route(n)));
        }
        demux
    }

    #[divan::bench]
    fn rtp(bencher: Bencher) {
        let (mut demux, mut n, datagram) = (table(), 0, [&[0x80, 96][..], &[0; 1_170]].concat());
        bencher.bench_local(|| {
            n = next(n);
            let found = demux.route(viewer(n), black_box(&datagram));
            debug_assert_eq!(found, Ok(route(n)));
            found
        });
        assert_eq!(demux.route(viewer(n), &datagram), Ok(route(n)));
    }

    #[divan::bench]
    fn stun(bencher: Bencher) {
        let (mut demux, mut n) = (table(), 0);
        let requests: Vec<_> = (0..VIEWERS).map(request).collect();
        bencher.bench_local(|| {
            n = next(n);
            demux.route(viewer(n), black_box(&requests[n as usize]))
        });
    }

    /// From an address that nobody has named.
    #[divan::bench]
    fn unknown(bencher: Bencher) {
        let mut demux = table();
        let stranger = SocketAddr::from(([192, 0, 2, 1], 9));
        bencher.bench_local(|| demux.route(black_box(stranger), &[0x80, 96, 0, 1]));
    }
}

mod outbox {
    use super::*;
    use rondo_actors::worker::outbox::Outbox;
    use rondo_media::send::PacketSink;

    /// A sealed packet of video; the last of a frame is shorter, as encoders make it.
    const PACKET: [usize; 4] = [1_190, 1_190, 1_190, 700];

    /// A frame of four packets for each viewer, up to the flush: what the egress writes is copied here.
    #[divan::bench]
    fn frames_to_50_viewers(bencher: Bencher) {
        const TO: u32 = 50;
        let (mut outbox, packet) = (Outbox::new(), vec![0x80; 1_190]);
        let datagrams = TO as usize * PACKET.len();
        bencher.counter(ItemsCount::new(datagrams)).bench_local(|| {
            outbox.clear();
            for n in 0..TO {
                let mut sink = outbox.to(viewer(n));
                for bytes in PACKET {
                    let buffer = sink.buffer();
                    let start = buffer.len();
                    buffer.extend_from_slice(&packet[..bytes]);
                    sink.finish(start);
                }
            }
        });
        assert_eq!((outbox.datagrams(), outbox.runs().len()), (datagrams, TO as usize), "one run a viewer");
    }

    /// One sound for each viewer.
    #[divan::bench]
    fn sounds_to_200_viewers(bencher: Bencher) {
        const TO: u32 = 200;
        let (mut outbox, packet) = (Outbox::new(), vec![0x80; 140]);
        bencher.counter(ItemsCount::new(TO)).bench_local(|| {
            outbox.clear();
            (0..TO).for_each(|n| outbox.push(viewer(n), &packet));
        });
        assert_eq!(outbox.runs().len(), TO as usize);
    }
}

mod wheel {
    use super::*;
    use rondo_actors::worker::wheel::{TimerKey, TimerWheel, WakeCounts};
    use rondo_media::units::{Deadline, Why};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn full(origin: Instant) -> TimerWheel {
        let mut wheel = TimerWheel::new(origin, Arc::new(WakeCounts::default()));
        for n in 0..VIEWERS {
            let at = origin + Duration::from_millis(u64::from(n) * 7 % 1_000 + 1);
            let _ = wheel.arm(TimerKey(n), Some(Deadline { at, why: Why::SenderReport }));
        }
        wheel
    }

    /// A wish that moves with every packet.
    #[divan::bench]
    fn move_one(bencher: Bencher) {
        let origin = Instant::now();
        let (mut wheel, mut n, mut after) = (full(origin), 0, 0u64);
        bencher.bench_local(|| {
            (n, after) = (next(n), after + 1);
            let at = origin + Duration::from_micros(1_000_000 + after * 50);
            wheel.arm(TimerKey(n), Some(Deadline { at, why: Why::SenderReport }))
        });
        assert_eq!(wheel.len(), VIEWERS as usize);
    }

    /// A wish for the millisecond that it was for already.
    #[divan::bench]
    fn keep_one(bencher: Bencher) {
        let origin = Instant::now();
        let mut wheel = full(origin);
        let at = origin + Duration::from_millis(500);
        let deadline = Some(Deadline { at, why: Why::SenderReport });
        let _ = wheel.arm(TimerKey(9), deadline);
        bencher.bench_local(|| wheel.arm(TimerKey(9), black_box(deadline)));
    }

    /// The earliest is taken out, and asks to be woken again a second later.
    #[divan::bench]
    fn expire_and_arm_one(bencher: Bencher) {
        let origin = Instant::now();
        let (mut wheel, mut due, mut woken) = (full(origin), Vec::with_capacity(VIEWERS as usize), 0usize);
        bencher.bench_local(|| {
            let Some(now) = wheel.next_deadline() else { panic!("the wheel is never empty") };
            wheel.expire(now, &mut due);
            woken += due.len();
            for (key, why) in due.drain(..) {
                let _ = wheel.arm(key, Some(Deadline { at: now + Duration::from_secs(1), why }));
            }
        });
        assert_eq!((wheel.len(), wheel.counts().of(Why::SenderReport)), (VIEWERS as usize, woken as u64));
    }
}
