//! Forwarding allocates nothing after warm-up, and a viewer costs little memory. Counted by this binary's allocator.

mod support {
    pub mod viewer;
}

use rondo_media::packet::Packet;
use rondo_media::send::{Egress, EgressConfig, Protection};
use rondo_media::transport::SrtpProfile;
use rondo_media::units::WallClock;
use rondo_media::wire::rtcp::{TwccWriter, write_nack, write_remb};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};
use support::viewer::*;

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn note(calls: usize, bytes: isize) {
    // The thread's cells may be gone while it ends.
    let _ = CALLS.try_with(|c| c.set(c.get() + calls));
    let _ = HELD.try_with(|c| c.set(c.get() + bytes));
}

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(0, -(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn batch(at: Instant, first: u64, packets: u64, key_frame: bool) -> Vec<Packet> {
    (first..first + packets)
        .map(|i| Packet {
            key_frame: key_frame && i == first,
            payload: vec![i as u8; 1_150].into(),
            ..packet(at, i, first as u32 * 300)
        })
        .collect()
}

#[test]
fn forwarding_resending_and_feedback_allocate_nothing_after_warm_up() {
    // What the viewer says that it takes at most: 1.5 Mbit/s may leave, 7.5 kB at once. Each eighth round then has a frame of
    // 24.4 kB, which waits.
    for (profile, remb) in PROFILES.into_iter().flat_map(|profile| [(profile, None), (profile, Some(600_000))]) {
        let (every, size) = if remb.is_some() { (8, 20) } else { (1, 10) };
        let mut pair = Pair::new(profile, &sections(), 5);
        let t0 = pair.t0;
        pair.egress.assign(t0, AUDIO, Some(OPUS)).unwrap();
        pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
        let mut feedback = Vec::with_capacity(16);
        let mut writer = TwccWriter::new(9, VIDEO_SSRC);
        let mut allocations = 0;
        let mut video_seq = 0;
        for round in 0..200u64 {
            let now = t0 + Duration::from_millis(33) * round as u32;
            let (first, packets) = (round / every * size, if round % every == 0 { size } else { 0 });
            let (video, audio) = (batch(now, first, packets, round == 0), [packet(now, round, round as u32 * 960)]);
            if round == 1 {
                let datagrams = pair.sent.take();
                let sealed = datagrams.iter().find(|d| d[1] & 0x7f == VP8_PT).unwrap();
                video_seq = u16::from_be_bytes([sealed[2], sealed[3]]);
            }
            pair.sent.clear();
            let lost = [video_seq.wrapping_add(first as u16)];
            let nack = pair.seal(|out| write_nack(out, 9, VIDEO_SSRC, &lost));
            let numbers = pair.egress.stats().packets + pair.egress.stats().rtx;
            let arrivals: Vec<_> = (0..12u64).map(|i| Some(numbers * 1_000 + i * 250)).collect();
            let twcc = pair.seal(|out| {
                writer.write(out, numbers as u16, &arrivals);
            });
            let remb = remb.map(|bps| pair.seal(|out| write_remb(out, 9, bps, &[VIDEO_SSRC])));
            let before = CALLS.get();
            if let Some(remb) = &remb {
                pair.egress.receive_rtcp(now, remb, &mut pair.sent, &mut feedback).unwrap();
                feedback.clear();
            }
            pair.egress.forward(now, AUDIO, 0, clock(now, 0), &audio, &mut pair.sent);
            pair.egress.forward(now, VIDEO, 0, clock(now, 0), &video, &mut pair.sent);
            pair.egress.receive_rtcp(now, &nack, &mut pair.sent, &mut feedback).unwrap();
            pair.egress.receive_rtcp(now, &twcc, &mut pair.sent, &mut feedback).unwrap();
            pair.egress.wake(now, &mut pair.sent);
            let _ = pair.egress.deadline();
            // A second and more: until then the ring of what can be sent again grows.
            if round >= 40 {
                allocations += CALLS.get() - before;
            }
        }
        let stats = pair.egress.stats();
        assert_eq!(stats.packets as usize, 200 + (200 / every * size) as usize - stats.waiting, "{stats:?}");
        assert_eq!((stats.paced > 0, stats.late), (remb.is_some(), 0), "{stats:?}");
        assert!(stats.rtx > 80 && stats.twcc_acked > 700, "{stats:?}");
        // AES-CM is the provider's, which allocates once for each packet that it encrypts or decrypts: 160 rounds of
        // 11 packets, a retransmission and two datagrams of feedback, and the reports of two streams.
        let allowed = if profile == SrtpProfile::Aes128CmSha1_80 { 160 * 14 + 20 } else { 0 };
        assert!(allocations <= allowed, "{profile:?}: {allocations} allocations");
    }
}

#[test]
fn a_viewer_of_one_sound_and_one_picture_holds_less_than_100_kib() {
    let t0 = origin();
    let (ours, _) = keys(PROFILES[0]);
    let sections = sections();
    let video: Vec<_> = (0..300).map(|i| batch(t0, i * 10, 10, i == 0)).collect();
    let mut sent = Sent::default();
    sent.buffer.reserve(1 << 16);
    sent.starts.reserve(64);
    let before = HELD.get();
    let wall = WallClock::new(t0, Duration::from_secs(1_700_000_000));
    let config = EgressConfig { cname: "ann".into(), wall, rtx_kept: EgressConfig::RTX_KEPT };
    let mut egress = Egress::new(Protection::new(&ours).unwrap(), &sections, config, &mut Seeded(1));
    let idle = HELD.get() - before;
    egress.assign(t0, AUDIO, Some(OPUS)).unwrap();
    egress.assign(t0, VIDEO, Some(VP8)).unwrap();
    for (round, batch) in video.iter().enumerate() {
        let now = t0 + Duration::from_millis(33) * round as u32;
        egress.forward(now, AUDIO, 0, clock(now, 0), &[packet(now, round as u64, 0)], &mut sent);
        egress.forward(now, VIDEO, 0, clock(now, 0), batch, &mut sent);
        sent.clear();
    }
    let held = HELD.get() - before;
    println!("egress: {idle} bytes idle, {held} bytes with media, {} of it in place", size_of::<Egress>());
    assert!(idle < 12 * 1024, "{idle} bytes before anything is sent");
    assert!(held < 100 * 1024, "{held} bytes");
}
