use super::*;
use std::net::Ipv6Addr;
use std::time::Instant;

/// Longest wait for a condition; the tests wait for far less.
const PATIENCE: Duration = Duration::from_secs(10);

fn counters() -> Arc<WorkerCounters> {
    Arc::default()
}

fn opened(bind: IpAddr) -> (SocketAddr, MediaReceiver, MediaSender) {
    let socket = MediaSocket::open(bind, 0).unwrap();
    let addr = SocketAddr::new(
        if bind == Ipv6Addr::UNSPECIFIED { Ipv6Addr::LOCALHOST.into() } else { bind },
        socket.addr().port(),
    );
    let (receiver, sender) = socket.split(counters());
    (addr, receiver, sender)
}

/// The machine has an IPv6 loopback; without one the IPv6 cases say that they are left out.
fn has_ipv6() -> bool {
    let has = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has {
        println!("left out: no IPv6 here");
    }
    has
}

/// Receives until `want` datagrams are there.
fn received(receiver: &mut MediaReceiver, want: usize) -> Vec<Datagram> {
    let until = Instant::now() + PATIENCE;
    let mut batch = RecvBatch::new();
    let mut all = Vec::new();
    while all.len() < want {
        assert!(Instant::now() < until, "{} of {want} datagrams", all.len());
        match receiver.recv(&mut batch) {
            Ok(n) => {
                assert_eq!(n, batch.datagrams().len());
                all.extend(batch.drain());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    all
}

/// Datagram `n` of a stream: its number, then bytes that follow from it. Frames of five packets of 1,100
/// bytes with a shorter last one, and small ones in between.
fn datagram(n: u32) -> Vec<u8> {
    let len = match n % 7 {
        0..=3 => 1_100,
        4 => 100 + n as usize % 900,
        _ => 60 + n as usize % 3,
    };
    let mut bytes = n.to_be_bytes().to_vec();
    bytes.extend((4..len).map(|i| (n as usize * 31 + i) as u8));
    bytes
}

/// 1,000 datagrams of mixed sizes to two destinations arrive intact and in order.
fn two_streams(bind: IpAddr, gso: bool) {
    let (from, _, mut sender) = opened(bind);
    let (a, mut receive_a, _) = opened(bind);
    let (b, mut receive_b, _) = opened(bind);
    if !gso {
        sender.give_up_gso();
    }
    let mut outbox = Outbox::new();
    for n in 0..1_000 {
        // A frame goes to one, the next to the other.
        outbox.push(if n / 7 % 2 == 0 { a } else { b }, &datagram(n));
        if outbox.wants_flush() || n == 999 {
            sender.send(&outbox);
            outbox.clear();
        }
    }
    let of = |parity| (0..1_000).filter(|n| n / 7 % 2 == parity).map(datagram).collect::<Vec<_>>();
    for (receiver, addr, want) in [(&mut receive_a, a, of(0)), (&mut receive_b, b, of(1))] {
        let got = received(receiver, want.len());
        assert!(got.iter().all(|d| d.from == from && d.to == Some(addr.ip())), "{:?}", got[0]);
        assert!(got.iter().map(|d| &d.bytes[..]).eq(want.iter().map(|w| &w[..])));
    }
    assert_eq!(sender.counters.datagrams_sent.get(), 1_000);
    assert_eq!(sender.counters.send_errors.get(), 0);
    assert_eq!(sender.has_gso(), gso);
    // 143 frames of at most four runs each and two flushes; without GSO four calls of 256 at least.
    let calls = sender.counters.send_calls.get();
    assert!(if gso { calls <= 4 } else { calls >= 4 }, "{calls} calls");
}

#[test]
fn streams_arrive_over_ipv4_with_gso() {
    two_streams(Ipv4Addr::LOCALHOST.into(), true);
}

#[test]
fn streams_arrive_over_ipv4_without_gso() {
    two_streams(Ipv4Addr::LOCALHOST.into(), false);
}

#[test]
fn streams_arrive_over_ipv6_with_gso() {
    if has_ipv6() {
        two_streams(Ipv6Addr::LOCALHOST.into(), true);
    }
}

#[test]
fn streams_arrive_over_ipv6_without_gso() {
    if has_ipv6() {
        two_streams(Ipv6Addr::LOCALHOST.into(), false);
    }
}

#[test]
fn one_socket_serves_ipv4_and_ipv6() {
    if !has_ipv6() {
        return;
    }
    let (addr, mut receiver, mut sender) = opened(Ipv6Addr::UNSPECIFIED.into());
    let v4 = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), addr.port());
    for peer_ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let peer = UdpSocket::bind((peer_ip, 0)).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = if peer_ip.is_ipv4() { v4 } else { addr };
        peer.send_to(b"hello", to).unwrap();
        let got = received(&mut receiver, 1).remove(0);
        assert_eq!((got.from, got.to, &got.bytes[..]), (peer.local_addr().unwrap(), Some(to.ip()), &b"hello"[..]));
        let mut outbox = Outbox::new();
        outbox.push(got.from, b"back");
        sender.send(&outbox);
        let mut buf = [0; 10];
        assert_eq!(peer.recv_from(&mut buf).unwrap(), (4, to));
    }
}

/// Without IPv6 the first bind fails with one of these numbers (ip(7), socket(2)); with the port in use it
/// fails with another, which is not to be hidden.
#[test]
fn any_address_becomes_ipv4_only_for_want_of_ipv6() {
    let any: SocketAddr = "[::]:7882".parse().unwrap();
    let binding = |errno: i32| {
        move |addr: SocketAddr| if addr.is_ipv6() { Err(io::Error::from_raw_os_error(errno)) } else { Ok(addr) }
    };
    for errno in [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL] {
        assert_eq!(bind_or_ipv4(any, binding(errno)).unwrap(), "0.0.0.0:7882".parse().unwrap());
    }
    assert_eq!(bind_or_ipv4(any, binding(libc::EADDRINUSE)).unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
    assert!(bind_or_ipv4("[::1]:1".parse().unwrap(), binding(libc::EADDRNOTAVAIL)).is_err());
}

#[test]
fn a_port_in_use_is_an_error() {
    let first = MediaSocket::open(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
    let again = MediaSocket::open(Ipv4Addr::LOCALHOST.into(), first.addr().port());
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert!(first.receive_buffer_bytes() >= 64 << 10, "{}", first.receive_buffer_bytes());
}

#[test]
fn gso_that_the_kernel_refuses_is_given_up_and_nothing_is_lost() {
    let (_, _, mut sender) = opened(Ipv4Addr::LOCALHOST.into());
    let (to, mut receiver, _) = opened(Ipv4Addr::LOCALHOST.into());
    if !sender.has_gso() {
        println!("left out: no GSO here");
        return;
    }
    sys::without_checksums(sender.socket.as_fd()).unwrap();
    let mut outbox = Outbox::new();
    for n in 0..140 {
        outbox.push(to, &datagram(n));
    }
    sender.send(&outbox);
    assert!(!sender.has_gso());
    let got = received(&mut receiver, 140);
    assert!(got.iter().map(|d| d.bytes.to_vec()).eq((0..140).map(datagram)));
    assert_eq!((sender.counters.datagrams_sent.get(), sender.counters.send_errors.get()), (140, 0));
}

#[test]
fn a_run_that_cannot_be_sent_is_skipped_and_counted_by_errno() {
    let (_, _, mut sender) = opened(Ipv4Addr::LOCALHOST.into());
    let (to, mut receiver, _) = opened(Ipv4Addr::LOCALHOST.into());
    let mut outbox = Outbox::new();
    outbox.push(to, b"first");
    outbox.push("[::1]:9".parse().unwrap(), b"an IPv4 socket cannot send to IPv6");
    outbox.push("255.255.255.255:9".parse().unwrap(), b"broadcast was not asked for");
    outbox.push(to, b"last");
    sender.send(&outbox);
    let got = received(&mut receiver, 2);
    assert_eq!((&got[0].bytes[..], &got[1].bytes[..]), (&b"first"[..], &b"last"[..]));
    assert_eq!((sender.counters.datagrams_sent.get(), sender.counters.send_errors.get()), (2, 2));
    // socket(7), ip(7): EAFNOSUPPORT for another family, EACCES (or EINVAL) for an unasked broadcast.
    assert_eq!(sender.errnos()[0], (libc::EAFNOSUPPORT, 1));
    assert_eq!(sender.errnos().len(), 2);
}

#[test]
fn drops_of_a_full_receive_buffer_are_counted() {
    let (to, mut receiver, _) = opened(Ipv4Addr::LOCALHOST.into());
    receiver.count_drops();
    assert_eq!(receiver.counters.kernel_drops.get(), 0);
    socket2::SockRef::from(&*receiver.socket).set_recv_buffer_size(4_096).unwrap();
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sent = 200;
    for _ in 0..sent {
        peer.send_to(&[0; 1_000], to).unwrap();
    }
    let mut batch = RecvBatch::new();
    let mut got = 0;
    while let Ok(n) = receiver.recv(&mut batch) {
        got += n as u64;
    }
    receiver.count_drops();
    receiver.count_drops();
    assert!(got < sent);
    assert_eq!(receiver.counters.kernel_drops.get(), sent - got);
}

#[test]
fn arenas_are_used_again_once_their_slices_are_gone_and_never_before() {
    let (to, mut receiver, _) = opened(Ipv4Addr::LOCALHOST.into());
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let kept: Vec<Datagram> = (0..3u8)
        .map(|n| {
            peer.send_to(&[n; 1_000], to).unwrap();
            received(&mut receiver, 1).remove(0)
        })
        .collect();
    // More than all arenas hold together, each datagram let go at once.
    for n in 0..3_000u32 {
        peer.send_to(&n.to_be_bytes().repeat(250), to).unwrap();
        assert_eq!(received(&mut receiver, 1)[0].bytes, n.to_be_bytes().repeat(250));
    }
    assert_eq!(receiver.arenas.pool.len(), 2, "one is held by what was kept, one goes round");
    assert!((0..3u8).zip(&kept).all(|(n, datagram)| datagram.bytes == vec![n; 1_000]));
}

#[test]
fn an_empty_datagram_is_one_datagram() {
    let (to, mut receiver, _) = opened(Ipv4Addr::LOCALHOST.into());
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for bytes in [&b""[..], b"x"] {
        peer.send_to(bytes, to).unwrap();
        assert_eq!(received(&mut receiver, 1)[0].bytes, bytes);
    }
}
