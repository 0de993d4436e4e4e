//! Our own case files: broken STUN (ice-04), where an H.264 stream may be entered (rtp-05).

use rondo_media::codec::h264::{self, Contents};
use rondo_media::receive::KeyFrameRequests;
use rondo_media::wire::rtp::{Class, RtpView, classify};
use rondo_media::wire::stun::{StunRefusal, local_ufrag};
use std::time::{Duration, Instant};

/// One line of a case file: its name, its bytes, and the line itself.
fn lines(file: &str) -> Vec<(String, Vec<u8>, String)> {
    let line = |line: &str| {
        let name = text_field(line, "name").unwrap();
        let hex = text_field(line, "hex").unwrap();
        let digits: Vec<u8> = hex.bytes().map(|c| (c as char).to_digit(16).unwrap() as u8).collect();
        (name.to_owned(), digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect(), line.to_owned())
    };
    file.lines().filter(|text| !text.is_empty()).map(line).collect()
}

fn text_field<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    line.split_once(&format!("\"{field}\": \""))?.1.split_once('"').map(|(value, _)| value)
}

fn flag(line: &str, field: &str) -> Option<bool> {
    let rest = line.split_once(&format!("\"{field}\": "))?.1;
    Some(rest.starts_with("true"))
}

#[test]
fn broken_stun_is_refused_and_the_whole_message_is_read() {
    let lines = lines(include_str!("cases/ice-04/packets.jsonl"));
    assert_eq!(lines.len(), 45);
    for (name, datagram, _) in &lines {
        let read = local_ufrag(datagram);
        match name.as_str() {
            // Well formed up to the integrity, which only the transport's password can judge.
            "two-message-integrity" => assert_eq!(read, Ok("Sv7Kq2Lm"), "{name}"),
            "300-empty-attrs" => assert_eq!(read, Err(StunRefusal::NoUsername), "{name}"),
            "truncated-0" | "truncated-19" => assert_eq!(read, Err(StunRefusal::Truncated(datagram.len())), "{name}"),
            "wrong-magic" => assert_eq!(read, Err(StunRefusal::Cookie(0)), "{name}"),
            "length-field-65535" => {
                assert_eq!(read, Err(StunRefusal::Length { said: 65_535, got: 76 }), "{name}");
            }
            "attr-length-beyond-end" => {
                let want = StunRefusal::Attribute { kind: 6, len: 0xfff8, room: 4 };
                assert_eq!(read, Err(want), "{name}");
            }
            _ => assert!(read.is_err(), "{name}: {read:?}"),
        }
        if !datagram.is_empty() {
            assert_eq!(classify(datagram), Class::Stun, "{name}");
        }
    }
    // The message that the truncated ones were cut from is the longest of them with its last byte put back.
    let (_, cut, _) = lines.iter().find(|(name, ..)| name == "truncated-95").unwrap();
    assert_eq!(local_ufrag(&[&cut[..], &[0xa3]].concat()), Ok("Sv7Kq2Lm"));
}

#[test]
fn an_h264_stream_may_be_entered_where_its_parameter_sets_are() {
    let lines = lines(include_str!("cases/rtp-05/packets.jsonl"));
    assert_eq!(lines.len(), 24);
    for (name, datagram, line) in &lines {
        let payload = RtpView::parse(datagram).unwrap().payload;
        let contents = h264::contents(payload);
        if let (Some(starts_idr), Some(has_sps)) = (flag(line, "starts_idr"), flag(line, "has_sps")) {
            assert_eq!(contents, Contents { starts_idr, has_sps }, "{name}");
            assert_eq!(h264::starts_key_frame(payload), has_sps, "{name}");
        } else if line.contains("not a key frame") {
            assert_eq!(contents, Contents::default(), "{name}");
        }
    }
}

#[test]
fn no_picture_is_asked_for_once_its_parameter_sets_have_come() {
    // rtp-05, check 3, whichever of the two shapes the encoder uses.
    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to start from")]
    let t0 = Instant::now();
    let lines = lines(include_str!("cases/rtp-05/packets.jsonl"));
    for answer in ["stap-sps-pps-idr", "single-sps"] {
        let (_, datagram, _) = lines.iter().find(|(name, ..)| name == answer).unwrap();
        let mut requests = KeyFrameRequests::default();
        assert!(requests.request(t0));
        assert!(!requests.request(t0 + Duration::from_millis(200)));
        assert!(h264::starts_key_frame(RtpView::parse(datagram).unwrap().payload));
        requests.on_key_frame();
        assert_eq!(requests.deadline(), None, "{answer}");
    }
}
