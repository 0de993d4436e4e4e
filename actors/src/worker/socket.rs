//! One UDP socket of a worker: batches in (recvmmsg with GRO), runs out (sendmmsg with GSO).
//!
//! The socket is opened anywhere, moved to the worker's thread and split there: the loop owns the receiver,
//! whoever empties the outbox owns the sender.

use super::demux::canonical;
use super::outbox::{Outbox, Run};
use super::sys;
use crate::count::WorkerCounters;
use bytes::{Bytes, BytesMut};
use quinn_udp::{RecvMeta, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes asked for as receive and as send buffer: 60 ms of 1 Gbit/s.
const BUFFER_BYTES: usize = 8 << 20;
/// The largest datagram, or what GRO puts together from several.
const SLOT_BYTES: usize = 1 << 16;
/// Bytes of an arena: some 200 full datagrams.
const ARENA_BYTES: usize = 256 << 10;
/// Arenas that are kept for reuse.
const ARENAS_MAX: usize = 8;
/// How often, and for how long each time, a full send buffer is waited for in one flush. It holds 8 MiB, so
/// what does not fit then is not a burst, and a worker may not stand still for it.
const WAITS_MAX: u32 = 2;
const WAIT: Duration = Duration::from_millis(1);
/// GSO sends refused in a row after which GSO is given up. One path may refuse (its MTU, IPsec) what others
/// take, so one refusal is no proof.
const GSO_REFUSALS_MAX: u32 = 3;
/// Error numbers told apart.
const ERRNOS_MAX: usize = 16;

/// A bound UDP socket.
#[derive(Debug)]
pub struct MediaSocket {
    socket: UdpSocket,
    state: UdpSocketState,
    addr: SocketAddr,
    receive_buffer_bytes: usize,
}

impl MediaSocket {
    /// Binds. `::` serves IPv6 and IPv4 from one socket, or IPv4 alone where the machine has no IPv6; port 0
    /// lets the system choose.
    ///
    /// # Errors
    /// What the system said: the port is in use, the address is not one of this machine, no right to bind.
    pub fn open(bind: IpAddr, port: u16) -> io::Result<Self> {
        let socket = bind_or_ipv4(SocketAddr::new(bind, port), bound)?;
        let state = UdpSocketState::new((&socket).into())?;
        sys::without_timestamps(socket.as_fd())?;
        enlarge(&socket, sys::Buffer::Send)?;
        enlarge(&socket, sys::Buffer::Receive)?;
        let socket: UdpSocket = socket.into();
        // The kernel doubles what it is asked for, to account for its own overhead, and tells the double.
        let receive_buffer_bytes = state.recv_buffer_size((&socket).into())? / 2;
        let addr = canonical(socket.local_addr()?);
        Ok(Self { socket, state, addr, receive_buffer_bytes })
    }

    /// The bound address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Receive buffer that the kernel granted, in bytes, comparable to what was asked for (8 MiB).
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Datagrams that one GSO send may carry; 1 if the kernel has no GSO.
    pub fn gso_segments(&self) -> usize {
        self.state.max_gso_segments().min(super::outbox::RUN_DATAGRAMS_MAX)
    }

    /// The two halves, to be used on one thread (the counters have one writer).
    pub fn split(self, counters: Arc<WorkerCounters>) -> (MediaReceiver, MediaSender) {
        let gso = self.gso_segments() > 1;
        let socket = Arc::new(self.socket);
        let sender = MediaSender {
            ipv6: self.addr.is_ipv6(),
            socket: Arc::clone(&socket),
            mmsg: sys::Mmsg::default(),
            gso,
            gso_refusals: 0,
            errnos: Vec::with_capacity(ERRNOS_MAX),
            counters: Arc::clone(&counters),
        };
        let receiver = MediaReceiver {
            socket,
            state: self.state,
            slots: vec![0; quinn_udp::BATCH_SIZE * SLOT_BYTES].into(),
            arenas: Arenas::default(),
            drops_seen: 0,
            counters,
        };
        (receiver, sender)
    }
}

fn bound(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// Binds with `bind`, and `::` as 0.0.0.0 where that fails for want of IPv6.
fn bind_or_ipv4<S>(addr: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<S>) -> io::Result<S> {
    match bind(addr) {
        Err(error) if addr.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
            bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), addr.port()))
        }
        other => other,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::EADDRNOTAVAIL))
}

/// Asks for a large buffer: beyond the system's limit where the process may, else up to it.
fn enlarge(socket: &Socket, which: sys::Buffer) -> io::Result<()> {
    if sys::set_buffer_by_force(socket.as_fd(), which, BUFFER_BYTES).is_ok() {
        return Ok(());
    }
    match which {
        sys::Buffer::Receive => socket.set_recv_buffer_size(BUFFER_BYTES),
        sys::Buffer::Send => socket.set_send_buffer_size(BUFFER_BYTES),
    }
}

/// One received datagram.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// Where it came from, IPv4-mapped addresses as IPv4.
    pub from: SocketAddr,
    /// The address of ours that it was sent to, where the system tells.
    pub to: Option<IpAddr>,
    /// Its bytes: a slice of what arrived with it, so keeping one small datagram keeps a whole arena of
    /// some 256 KiB. Copy what is to live long.
    pub bytes: Bytes,
}

/// What one receive call brought.
#[derive(Debug, Default)]
pub struct RecvBatch {
    datagrams: Vec<Datagram>,
    more: bool,
}

impl RecvBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The datagrams, in order of arrival.
    pub fn datagrams(&self) -> &[Datagram] {
        &self.datagrams
    }

    /// Takes the datagrams out, in order of arrival; memory is kept.
    pub fn drain(&mut self) -> impl Iterator<Item = Datagram> + '_ {
        self.datagrams.drain(..)
    }

    /// The call took as much as one call can: there may be more.
    pub fn more(&self) -> bool {
        self.more
    }

    /// Lets go of all datagrams.
    pub fn clear(&mut self) {
        self.datagrams.clear();
        self.more = false;
    }
}

/// Buffers that received datagrams are slices of, used again once all slices are gone.
#[derive(Debug, Default)]
struct Arenas {
    pool: Vec<BytesMut>,
    current: usize,
}

impl Arenas {
    /// An empty arena with room for `bytes`: one whose slices are gone, or one of its own.
    fn with_room(&mut self, bytes: usize) -> &mut BytesMut {
        let len = self.pool.len();
        let free = (0..len).map(|n| (self.current + n) % len).find(|place| self.pool[*place].try_reclaim(bytes));
        if let Some(place) = free {
            self.current = place;
        } else if len < ARENAS_MAX {
            self.pool.push(BytesMut::with_capacity(bytes.max(ARENA_BYTES)));
            self.current = len;
        } else {
            // Its readers keep the old one; it goes with the last of them.
            self.current = (self.current + 1) % ARENAS_MAX;
            self.pool[self.current] = BytesMut::with_capacity(bytes.max(ARENA_BYTES));
        }
        &mut self.pool[self.current]
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct MediaReceiver {
    socket: Arc<UdpSocket>,
    state: UdpSocketState,
    /// `BATCH_SIZE` slots of `SLOT_BYTES`, into which the kernel writes.
    slots: Box<[u8]>,
    arenas: Arenas,
    drops_seen: u32,
    counters: Arc<WorkerCounters>,
}

impl MediaReceiver {
    /// The socket, to wait for.
    pub fn socket(&self) -> &Arc<UdpSocket> {
        &self.socket
    }

    /// Receives what is there, in one call, into `batch` (emptied before). Answers how many datagrams.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; else what the system said, which may be a passing complaint about
    /// an earlier send.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        let mut metas = [RecvMeta::default(); quinn_udp::BATCH_SIZE];
        let mut slots = self.slots.chunks_exact_mut(SLOT_BYTES);
        let mut vectors: [IoSliceMut<'_>; quinn_udp::BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        let received = self.state.recv((&*self.socket).into(), &mut vectors, &mut metas)?;
        let metas = metas.get(..received).unwrap_or_default();
        batch.more = received == quinn_udp::BATCH_SIZE;

        let arena = self.arenas.with_room(metas.iter().map(|meta| meta.len).sum());
        for (meta, slot) in metas.iter().zip(self.slots.chunks_exact(SLOT_BYTES)) {
            arena.extend_from_slice(slot.get(..meta.len).unwrap_or(slot));
        }
        let mut bytes = arena.split().freeze();
        for meta in metas {
            let (from, to) = (canonical(meta.addr), meta.dst_ip.map(|ip| ip.to_canonical()));
            let mut message = bytes.split_to(meta.len.min(bytes.len()));
            let stride = meta.stride.max(1);
            while message.len() > stride {
                batch.datagrams.push(Datagram { from, to, bytes: message.split_to(stride) });
            }
            batch.datagrams.push(Datagram { from, to, bytes: message });
        }
        self.counters.receive_calls.add(1);
        self.counters.datagrams_received.add(batch.datagrams.len() as u64);
        Ok(batch.datagrams.len())
    }

    /// Counts what the kernel has dropped at this socket since the last call. One system call: not for each
    /// packet.
    pub fn count_drops(&mut self) {
        if let Ok(drops) = sys::kernel_drops(self.socket.as_fd()) {
            self.counters.kernel_drops.add(u64::from(drops.wrapping_sub(self.drops_seen)));
            self.drops_seen = drops;
        }
    }

    /// The counters of this worker.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }
}

/// One message for the kernel: a datagram, or several of equal size (the last may be shorter) for GSO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Where to, IPv4-mapped addresses as IPv4.
    pub dest: SocketAddr,
    /// The datagrams, back to back.
    pub bytes: &'a [u8],
    /// Size of every datagram but the last, 1 to 65,000 bytes.
    pub segment_bytes: usize,
}

impl<'a> Message<'a> {
    fn of(outbox: &'a Outbox, run: &Run) -> Self {
        Self { dest: run.dest, bytes: outbox.bytes(run), segment_bytes: run.segment_bytes.max(1) }
    }

    /// Datagrams in it.
    pub fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.segment_bytes)
    }

    /// Each datagram as a message of its own.
    fn apart(self) -> impl Iterator<Item = Message<'a>> + Clone {
        let Self { dest, bytes, segment_bytes } = self;
        bytes.chunks(segment_bytes).map(move |bytes| Message { dest, bytes, segment_bytes })
    }
}

/// What to do about a refused message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// Nothing: the call was interrupted.
    Interrupted,
    /// The send buffer is full.
    BufferFull,
    /// The kernel or the device does not segment: each datagram goes by itself.
    NoGso,
    /// This message cannot be sent; others may.
    ThisOne,
}

impl Refusal {
    fn of(error: &io::Error, message: &Message<'_>) -> Self {
        match error.raw_os_error() {
            Some(libc::EINTR) => Self::Interrupted,
            Some(libc::EAGAIN) => Self::BufferFull,
            Some(libc::EIO | libc::EINVAL) if message.count() > 1 => Self::NoGso,
            Some(_) | None => Self::ThisOne,
        }
    }
}

/// The sending half.
#[derive(Debug)]
pub struct MediaSender {
    socket: Arc<UdpSocket>,
    ipv6: bool,
    mmsg: sys::Mmsg,
    gso: bool,
    gso_refusals: u32,
    /// By error number: datagrams it cost.
    errnos: Vec<(i32, u64)>,
    counters: Arc<WorkerCounters>,
}

impl MediaSender {
    /// Sends every run of the outbox, in one system call if the kernel takes them so, and counts what it does
    /// not take: a run it refuses is skipped; when the send buffer stays full for 2 ms, the rest is dropped.
    /// The caller clears the outbox.
    pub fn send(&mut self, outbox: &Outbox) {
        let mut waits = WAITS_MAX;
        let messages = outbox.runs().iter().map(|run| Message::of(outbox, run));
        if self.gso {
            self.send_all(messages, &mut waits);
        } else {
            self.send_all(messages.flat_map(Message::apart), &mut waits);
        }
    }

    /// The kernel segments for us.
    pub fn has_gso(&self) -> bool {
        self.gso
    }

    /// From now on each datagram is a message of its own.
    pub fn give_up_gso(&mut self) {
        self.gso = false;
    }

    /// Error number and datagrams it cost, in order of first appearance; of each further one beyond 16 only
    /// the counter `send_errors` tells.
    pub fn errnos(&self) -> &[(i32, u64)] {
        &self.errnos
    }

    fn send_all<'a>(&mut self, mut rest: impl Iterator<Item = Message<'a>> + Clone, waits: &mut u32) {
        while let Some(first) = rest.clone().next() {
            let sent = self.mmsg.send(self.socket.as_fd(), self.ipv6, rest.clone());
            self.counters.send_calls.add(1);
            match sent {
                Ok(taken) => self.taken(rest.by_ref().take(taken)),
                Err(error) => match Refusal::of(&error, &first) {
                    Refusal::Interrupted => {}
                    Refusal::BufferFull => {
                        if *waits == 0 {
                            let lost = rest.map(|message| message.count() as u64).sum();
                            self.lost(&error, lost);
                            return;
                        }
                        *waits -= 1;
                        // Whatever comes of it, the next call tells.
                        let _ = sys::poll_writable(self.socket.as_fd(), WAIT);
                    }
                    Refusal::NoGso => {
                        self.refused_gso(&error);
                        self.send_all(first.apart(), waits);
                        rest.next();
                    }
                    Refusal::ThisOne => {
                        self.lost(&error, first.count() as u64);
                        rest.next();
                    }
                },
            }
        }
    }

    fn taken<'a>(&mut self, messages: impl Iterator<Item = Message<'a>>) {
        let mut datagrams = 0;
        for message in messages {
            let count = message.count();
            datagrams += count;
            if count > 1 {
                self.gso_refusals = 0;
            }
        }
        self.counters.datagrams_sent.add(datagrams as u64);
    }

    fn refused_gso(&mut self, error: &io::Error) {
        self.gso_refusals += 1;
        if self.gso && self.gso_refusals >= GSO_REFUSALS_MAX {
            self.gso = false;
            tracing::warn!(%error, "the kernel refuses segmentation offload (GSO); sending costs more from now on");
        }
    }

    fn lost(&mut self, error: &io::Error, datagrams: u64) {
        self.counters.send_errors.add(datagrams);
        let errno = error.raw_os_error().unwrap_or(0);
        if let Some(known) = self.errnos.iter_mut().find(|known| known.0 == errno) {
            known.1 += datagrams;
        } else if self.errnos.len() < ERRNOS_MAX {
            self.errnos.push((errno, datagrams));
        }
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
