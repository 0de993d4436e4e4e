//! Counters that the hot path can afford: plain per-worker cells, read by whoever scrapes.

use crate::api::LeaveReason;
use rondo_media::transport::DtlsFailure;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! cells {
    ($(#[doc = $about:literal])+ $all:ident: $($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(#[doc = $about])+
        #[derive(Debug, Default)]
        pub struct $all { $($(#[doc = $doc])+ pub $name: Counter,)+ }

        impl $all {
            /// Name, meaning and value of each, in a fixed order.
            pub fn read(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($doc),+), self.$name.get()),)+]
            }
        }
    };
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owning thread may.
    #[inline]
    pub fn add(&self, n: u64) {
        // One writer: no locked instruction is needed.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
    /// Makes it `n`, for what goes up and down; only the owning thread may.
    #[inline]
    pub fn set(&self, n: usize) {
        self.0.store(n as u64, Ordering::Relaxed);
    }
    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

cells! {
    /// One worker's counters. Written by its thread only, so an update is a plain load and store.
    WorkerCounters:
    /// Datagrams read from the socket.
    datagrams_received,
    /// Receive system calls that returned something.
    receive_calls,
    /// Datagrams sent.
    datagrams_sent,
    /// Runs handed to the kernel: datagrams of one size to one viewer, sent as one.
    runs_sent,
    /// Send system calls.
    send_calls,
    /// Datagrams that the kernel refused to send.
    send_errors,
    /// Datagrams that the kernel dropped because the socket's receive buffer was full.
    kernel_drops,
    /// Datagrams that were neither STUN, DTLS, RTP nor RTCP (RFC 7983).
    dropped_not_ours,
    /// Datagrams from an address that no transport has proven.
    dropped_unknown_address,
    /// STUN messages whose ufrag is not one of ours, or that cannot be read.
    dropped_bad_stun,
    /// STUN and DTLS beyond what one transport may be sent.
    dropped_over_rate,
    /// Datagrams that a transport could not use: failed authentication, malformed.
    dropped_by_transport,
    /// ICE sessions that peers began anew on transports that went on.
    ice_restarts,
    /// RTP packets received from publishers, duplicates included.
    rtp_received,
    /// RTP packets dropped because they had been seen before.
    rtp_duplicates,
    /// RTP packets dropped because they came too late for the window.
    rtp_too_late,
    /// RTP packets of audio dropped because their section sent more than any voice or music needs.
    audio_over_rate,
    /// Batches of audio that no viewer was sent because enough louder people were heard.
    audio_left_out,
    /// RTP packets forwarded to viewers, retransmissions not counted.
    rtp_forwarded,
    /// RTP packets of video dropped because they would have waited for too long for what a viewer's path takes.
    video_late,
    /// Retransmissions sent to viewers.
    rtx_sent,
    /// Packets that viewers asked for and the ring no longer had.
    rtx_missed,
    /// RTCP packets received from viewers.
    rtcp_received,
    /// RTCP packets from viewers that could not be read or authenticated.
    rtcp_bad,
    /// Key frame requests received from viewers.
    key_frames_asked,
    /// Key frame requests passed on to publishers, after coalescing.
    key_frames_requested,
    /// Changes of the layer that a viewer is sent.
    layer_switches,
    /// Packets acknowledged by transport-wide feedback.
    twcc_acked,
    /// Packets reported lost by transport-wide feedback.
    twcc_lost,
    /// Messages refused because an actor's queue was full.
    queue_full,
    /// Panics caught in sessions.
    session_panics,
    /// Panics caught in rooms.
    room_panics,
    /// Panics caught in the worker's loop.
    loop_panics,
    /// Event streams closed because their reader was too slow.
    event_streams_too_slow,
    /// Wake-ups of timers.
    timer_wakeups,
    /// Rounds of the worker's loop.
    rounds,
    /// Joins answered.
    joins_answered,
    /// Transports that came up (DTLS).
    joins_connected,
    /// Joins that never came up.
    joins_failed,
    /// Datagrams that found no room in the outbox: somebody wrote more in one go than it may hold.
    outbox_refused,
}

cells! {
    /// What one worker holds. Written by its thread each time it is asked whether it lives, read by whoever scrapes:
    /// what is at rest is told as it is half a second later.
    WorkerHeld:
    /// Places of sessions in the worker's table.
    slots,
    /// Actors that have a timer: sessions and rooms.
    timers,
    /// Timers that have a deadline.
    timers_armed,
    /// Transports that datagrams are routed to.
    demux_transports,
    /// ICE user name fragments that datagrams are routed by.
    demux_ufrags,
    /// Addresses that datagrams are routed by, provisional ones included.
    demux_addresses,
    /// Actors whose task is on the worker's thread: sessions, rooms and the worker's own.
    actors,
}

/// Joins that never came up, by code: a [`LeaveReason`], or a [`DtlsFailure`] where that is the reason.
#[derive(Debug)]
pub struct Failures(Vec<(&'static str, Counter)>);

impl Default for Failures {
    fn default() -> Self {
        let reasons = LeaveReason::ALL.into_iter().map(LeaveReason::label);
        let mut codes: Vec<&'static str> = reasons.chain(DtlsFailure::ALL.into_iter().map(DtlsFailure::code)).collect();
        codes.sort_unstable();
        codes.dedup();
        Self(codes.into_iter().map(|code| (code, Counter::default())).collect())
    }
}

impl Failures {
    /// Counts one; only the owning thread may. A code that is none of the set is not counted.
    pub fn add(&self, code: &str) {
        if let Some((_, counter)) = self.0.iter().find(|(known, _)| *known == code) {
            counter.add(1);
        }
    }

    /// Each code with its count, in the order of codes.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(code, counter)| (*code, counter.get()))
    }
}

/// A reading of a whole node.
#[derive(Debug, Clone, Default)]
pub struct NodeCounts {
    /// Per worker: name, meaning, value of each counter.
    pub workers: Vec<Vec<(&'static str, &'static str, u64)>>,
    /// Per worker: name, meaning, value of each gauge.
    pub held: Vec<Vec<(&'static str, &'static str, u64)>>,
    /// Rooms open, by kind label.
    pub rooms: Vec<(&'static str, u64)>,
    /// Sessions per worker.
    pub sessions: Vec<u64>,
    /// Transports per worker.
    pub transports: Vec<u64>,
    /// Participants that left, by reason label.
    pub left: Vec<(&'static str, u64)>,
    /// Joins that never came up, by reason label.
    pub failed: Vec<(&'static str, u64)>,
    /// Timer wake-ups by reason label.
    pub wakeups: Vec<(&'static str, u64)>,
    /// The supervisor's actor panicked: nobody can join any more.
    pub supervisor_lost: u64,
    /// Rooms whose actor panicked.
    pub rooms_died: u64,
    /// Rooms opened anew after their actor had panicked.
    pub restarts: u64,
    /// Worker threads that died.
    pub workers_lost: u64,
}
