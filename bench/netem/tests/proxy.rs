//! The built proxy between two sockets.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Proxy {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    addr: SocketAddr,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn proxy(to: SocketAddr, down: &str) -> Proxy {
    let file = std::env::temp_dir().join(format!("rondo-netem-{}.json", to.port()));
    std::fs::write(&file, down).expect("a schedule");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rondo-netem"))
        .args(["--listen", "127.0.0.1:0", "--to", &to.to_string(), "--down"])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the proxy");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let first = lines.next().expect("a first line").expect("text");
    let _ = std::fs::remove_file(file);
    let told: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    let addr = told["listen"].as_str().expect("its address").parse().expect("an address");
    Proxy { child, lines, addr }
}

#[test]
fn datagrams_go_both_ways_at_the_rate_that_was_ordered() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    }
    // 1,000 bytes with headers each 10 ms.
    let mut proxy =
        proxy(server.local_addr().expect("its address"), r#"[{"rate_kbps": 800, "queue_ms": 2000, "delay_ms": 30}]"#);
    client.send_to(b"hello", proxy.addr).expect("sent");
    let mut buffer = [0; 2_000];
    let (len, from) = server.recv_from(&mut buffer).expect("what the client said");
    assert_eq!(&buffer[..len], b"hello");
    let begun = Instant::now();
    for n in 0..50u8 {
        server.send_to(&[n; 972], from).expect("sent");
    }
    let mut first = None;
    for n in 0..50u8 {
        let len = client.recv(&mut buffer).expect("all of it");
        assert_eq!((len, buffer[0]), (972, n), "in order");
        first.get_or_insert(begun.elapsed());
    }
    let (first, last) = (first.expect("one"), begun.elapsed());
    // Half a second of packets; more only if the machine is busy.
    assert!(first >= Duration::from_millis(40) && last >= Duration::from_millis(529), "{first:?} {last:?}");
    let told = proxy.lines.find_map(|line| {
        let told: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
        (told["down"][0]["delivered"] == 50).then_some(told)
    });
    let told = told.expect("a line that says so");
    assert_eq!((&told["clients"], &told["up"][0]["delivered"]), (&1.into(), &1.into()));
}

#[test]
fn what_cannot_be_done_is_said_in_one_sentence() {
    let run = |args: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_rondo-netem")).args(args).output().expect("the proxy");
        (done.status.code(), String::from_utf8(done.stderr).expect("text"))
    };
    let (code, error) = run(&["--listen", "127.0.0.1:0", "--to", "192.0.2.1:7882"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("--to 192.0.2.1:7882 is not on this machine"), "{error}");
    let (code, error) = run(&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--down", "/nowhere/at-all.json"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("/nowhere/at-all.json cannot be read"), "{error}");
}
