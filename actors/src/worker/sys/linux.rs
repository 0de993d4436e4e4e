//! Linux: sendmmsg with GSO (udp(7) `UDP_SEGMENT`), socket buffers beyond the limit, drops of the receive queue.

use crate::worker::socket::Message;
use socket2::SockAddr;
use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Messages in one sendmmsg call; the kernel takes up to 1,024.
const MESSAGES_MAX: usize = 256;

/// Which socket buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Of received datagrams.
    Receive,
    /// Of datagrams to be sent.
    Send,
}

/// Room for one control message with the segment size, aligned for its header.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; 32]);

/// The tables that sendmmsg(2) reads, kept between calls so that a call allocates nothing. Outside of
/// [`Mmsg::send`] they are empty.
#[derive(Default)]
pub struct Mmsg {
    names: Vec<SockAddr>,
    vectors: Vec<libc::iovec>,
    controls: Vec<Control>,
    headers: Vec<libc::mmsghdr>,
}

impl Mmsg {
    /// Hands the first messages, at most 256, to the kernel in one call. `ipv6`: the socket is an IPv6 one, to
    /// which IPv4 destinations are told as mapped addresses.
    ///
    /// Answers how many were taken, at least one unless `messages` is empty.
    ///
    /// # Errors
    /// What the kernel said of the first message; none was taken.
    pub fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        ipv6: bool,
        messages: impl Iterator<Item = Message<'a>>,
    ) -> io::Result<usize> {
        for message in messages.take(MESSAGES_MAX) {
            self.names.push(name(message.dest, ipv6));
            self.vectors
                .push(libc::iovec { iov_base: message.bytes.as_ptr().cast_mut().cast(), iov_len: message.bytes.len() });
            self.controls.push(Control([0; 32]));
            // SAFETY: an mmsghdr is numbers and pointers, for all of which zero is a value.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            // Whether there is a control message, until its place is known below.
            header.msg_len = if message.count() > 1 { message.segment_bytes as u32 } else { 0 };
            self.headers.push(header);
        }
        self.link();
        // SAFETY: `link` made every header of `headers` complete; what they point to (`names`, `vectors`,
        // `controls`, and the messages' bytes, borrowed for 'a) is neither moved nor freed before the call
        // returns, and the kernel only reads it.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), self.headers.len() as u32, libc::MSG_NOSIGNAL)
        };
        let result = usize::try_from(sent).map_err(|_| io::Error::last_os_error());
        self.names.clear();
        self.vectors.clear();
        self.controls.clear();
        self.headers.clear();
        result
    }

    /// Points each header at its name, vector and control message. Nothing may be pushed to a table afterwards.
    fn link(&mut self) {
        let parts = self.names.iter().zip(&mut self.vectors).zip(&mut self.controls);
        for (header, ((name, vector), control)) in self.headers.iter_mut().zip(parts) {
            let segment = std::mem::take(&mut header.msg_len);
            let header = &mut header.msg_hdr;
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len();
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            if segment > 0 {
                header.msg_control = control.0.as_mut_ptr().cast();
                set_segment(header, segment as u16);
            }
        }
    }
}

impl std::fmt::Debug for Mmsg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mmsg").field("capacity", &self.headers.capacity()).finish_non_exhaustive()
    }
}

/// Writes the segment size into the header's control buffer, which is a `Control`.
fn set_segment(header: &mut libc::msghdr, segment_bytes: u16) {
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute. `msg_control` points to a `Control`, 32 bytes aligned for a
    // cmsghdr, and CMSG_SPACE of a u16 is 24 bytes at most (a 16-byte header and 8): CMSG_FIRSTHDR is not null,
    // header and value lie within. The value is written unaligned, so its alignment does not matter.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        let control = libc::CMSG_FIRSTHDR(header);
        (*control).cmsg_level = libc::SOL_UDP;
        (*control).cmsg_type = libc::UDP_SEGMENT;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment_bytes);
    }
}

/// The destination as this socket's family names it.
fn name(dest: SocketAddr, ipv6: bool) -> SockAddr {
    match dest {
        SocketAddr::V4(v4) if ipv6 => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        SocketAddr::V4(_) | SocketAddr::V6(_) => dest.into(),
    }
}

/// Sets a socket buffer beyond the system's limit.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN.
pub fn set_buffer_by_force(socket: BorrowedFd<'_>, which: Buffer, bytes: usize) -> io::Result<()> {
    let name = match which {
        Buffer::Receive => libc::SO_RCVBUFFORCE,
        Buffer::Send => libc::SO_SNDBUFFORCE,
    };
    set_option(socket, name, libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX))
}

/// Turns receive timestamps off, which `quinn-udp` turns on: nobody here reads them, the kernel takes one for
/// every packet of the machine while any socket wants them, and they crowd the control messages.
pub fn without_timestamps(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SO_TIMESTAMPNS, 0)
}

/// Sends without UDP checksums, for which the kernel refuses GSO with EINVAL (`udp_send_skb`).
#[cfg(test)]
pub fn without_checksums(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SO_NO_CHECK, 1)
}

fn set_option(socket: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one int from `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams that the kernel dropped at this socket since it was opened, modulo 2^32: the receive buffer was
/// full, or a checksum wrong (`SO_MEMINFO`, Linux 4.12).
pub fn kernel_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // Newer kernels may know more figures than these nine; they fill what fits.
    let mut figures = [0u32; 16];
    let mut len = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `figures`, which is that long.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(figures[libc::SK_MEMINFO_DROPS as usize]) } else { Err(io::Error::last_os_error()) }
}

/// Waits until the socket takes datagrams again, at most `timeout` (whole milliseconds). Answers whether it does.
pub fn poll_writable(socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let timeout_ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads and writes the one pollfd given, which outlives the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(poll.revents & libc::POLLOUT != 0) }
}
