//! Replays of captures that are not part of the project: where `RONDO_VECTORS` names their folder.

use rondo_media::codec::{Codec, Format};
use rondo_media::receive::{Received, StreamReceiver, TransportClock};
use rondo_media::transport::ReceivedRtp;
use rondo_media::wire::rtp::{RtpRefusal, RtpView};
use rondo_media::wire::stun::local_ufrag;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("RONDO_VECTORS").map(PathBuf::from);
    if folder.is_none() {
        println!("RONDO_VECTORS is not set: nothing is replayed");
    }
    folder
}

/// UDP payloads of a little-endian pcap file of Ethernet, IPv4 without options: 42 bytes of headers a frame.
fn datagrams(pcap: &[u8]) -> Vec<&[u8]> {
    let mut rest = &pcap[24..];
    let mut out = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(*header[8..].first_chunk().unwrap()) as usize;
        out.push(&after[42..len]);
        rest = &after[len..];
    }
    out
}

/// (sequence number, begins a key frame) of every packet with a payload.
fn key_frames(codec: Codec, pcap: &[u8]) -> Vec<(u16, bool)> {
    let views = datagrams(pcap).into_iter().map(|datagram| RtpView::parse(datagram).unwrap());
    let views = views.filter(|view| !view.payload.is_empty());
    views.map(|view| (view.header.seq, codec.starts_key_frame(view.payload))).collect()
}

/// The same from the text dump beside the capture, by `is_key` of its last column.
fn dumped(text: &str, is_key: impl Fn(&str) -> bool) -> Vec<(u16, bool)> {
    let seq = |line: &str| line.split_once("Seq=").unwrap().1.split_once(',').unwrap().0.parse().unwrap();
    text.lines().filter(|line| line.contains("Seq=")).map(|line| (seq(line), is_key(line))).collect()
}

fn agree(name: &str, got: &[(u16, bool)], want: &[(u16, bool)], at_least: usize) {
    let keys: Vec<u16> = got.iter().filter(|(_, key)| *key).map(|(seq, _)| *seq).collect();
    println!("{name}: {} packets, key frames at {keys:?}", got.len());
    assert!(keys.len() >= at_least, "{name}");
    for (seq, key) in got {
        let dumped = want.iter().find(|(other, _)| other == seq);
        assert!(dumped.is_none_or(|(_, want)| want == key), "{name}: packet {seq}: {key}");
    }
}

#[test]
fn key_frames_of_captures_are_where_others_see_them() {
    let Some(folder) = folder().map(|folder| folder.join("str0m")) else { return };
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let text = |name: &str| String::from_utf8(read(name)).unwrap();
    let vp8 = key_frames(Codec::Vp8, &read("vp8.pcap"));
    agree("vp8", &vp8, &dumped(&text("vp8.txt"), |line| line.contains("Keyframe")), 3);
    // Wireshark reads an aggregate whose last unit is cut; a decoder drops it.
    let is_key = |line: &str| line.contains("SPS") && !line.contains("Bad NAL Length");
    agree("h264", &key_frames(Codec::H264, &read("h264.pcap")), &dumped(&text("h264.txt"), is_key), 4);
    type Detector = fn(&[u8]) -> bool;
    for (name, codec, detector, keys) in [
        ("vp9.pcap", Codec::Vp9, str0m::format::detect_vp9_keyframe as Detector, 1),
        // Begins in the middle: P = 1 in every descriptor.
        ("contiguous_vp9.pcap", Codec::Vp9, str0m::format::detect_vp9_keyframe, 0),
        ("av1.pcap", Codec::Av1, str0m::format::detect_av1_keyframe, 1),
    ] {
        let bytes = read(name);
        let views = datagrams(&bytes).into_iter().map(|datagram| RtpView::parse(datagram).unwrap());
        let want: Vec<_> = views.map(|view| (view.header.seq, detector(view.payload))).collect();
        agree(name, &key_frames(codec, &bytes), &want, keys);
    }
}

#[test]
fn captures_pass_the_receive_side_whole_and_frame_by_frame() {
    let Some(folder) = folder().map(|folder| folder.join("str0m")) else { return };
    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    let t0 = Instant::now();
    for (name, codec) in [("vp8.pcap", Codec::Vp8), ("h264.pcap", Codec::H264), ("av1.pcap", Codec::Av1)] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let views: Vec<_> = datagrams(&bytes).into_iter().map(|datagram| RtpView::parse(datagram).unwrap()).collect();
        let mut stream = StreamReceiver::new(codec);
        let (mut transport, mut out, mut new) = (TransportClock::new(), Vec::new(), 0);
        for (n, view) in views.iter().enumerate().filter(|(_, view)| view.header.ssrc == views[0].header.ssrc) {
            let rtp = ReceivedRtp {
                ssrc: view.header.ssrc,
                section: 0,
                layer: 0,
                format: Format { codec, profile: 0, packetization: 0 },
                ext_seq: 65_536 + u64::from(view.header.seq),
                rtp_time: view.header.rtp_time,
                marker: view.header.marker,
                level: None,
                payload: view.payload.into(),
                sender_report: None,
            };
            match stream.receive(t0 + Duration::from_micros(n as u64), &rtp, &mut transport) {
                Received::New { .. } | Received::PaddingOnly => new += 1,
                Received::Duplicate | Received::TooLate => {}
            }
            let before = out.len();
            stream.take_batch(t0 + Duration::from_micros(n as u64), &mut out);
            assert!(out.len() == before || view.header.marker || before == 0 || stream.deadline().is_some());
        }
        stream.take_batch(t0 + Duration::from_secs(1), &mut out);
        println!("{name}: {:?}", stream.stats());
        assert_eq!(out.len(), new, "{name}");
        assert_eq!(stream.stats().duplicates + new as u64, views.len() as u64, "{name}: one stream");
    }
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_file()).map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

#[test]
fn corpora_are_read_without_a_panic() {
    let Some(folder) = folder() else { return };
    let corpora = ["libwebrtc-corpora/rtp-corpus", "libwebrtc-corpora/stun-corpus", "aioice", "aiortc"];
    for (path, bytes) in corpora.iter().flat_map(|corpus| files(&folder.join(corpus))) {
        let read = RtpView::parse(&bytes);
        if let Ok(view) = read {
            view.extensions().for_each(drop);
            Codec::ALL.iter().for_each(|codec| {
                let _ = codec.starts_key_frame(view.payload);
            });
        }
        let _ = local_ufrag(&bytes);
        let name = path.file_name().unwrap().to_str().unwrap();
        match name {
            "rtp.bin" | "rtp_dtmf.bin" | "rtp_with_csrc.bin" | "rtp_with_sdes_mid.bin" => {
                assert!(!read.unwrap().payload.is_empty(), "{name}");
            }
            "rtp_only_padding.bin" | "rtp_only_padding_with_header_extensions.bin" => {
                assert!(read.unwrap().payload.is_empty() && read.unwrap().padding_len > 0, "{name}");
            }
            "binding_response.bin" => assert!(local_ufrag(&bytes).is_err(), "{name}"),
            _ => {}
        }
    }
    assert!(matches!(RtpView::parse(&[]), Err(RtpRefusal::Truncated { .. })));
}
