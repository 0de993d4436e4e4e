//! Offers and their answers, case by case; what is right comes from the RFC each test names.

use crate::net::*;
use proptest::prelude::*;
use rondo_media::codec::{Codec, Format};
use rondo_media::sdp::SdpRefusal;
use rondo_media::transport::{Accept, Role, Section, Transport};

fn answer(role: Role, offer: &str) -> Result<(String, Vec<Section>), SdpRefusal> {
    let candidates = [address(SERVER), address("[2001:db8::1]:7882")];
    let (transport, answer) = Transport::accept(start(), shared(), Accept { role, candidates: &candidates, offer })?;
    let text = answer.finish(&[(0, "ann", "TR_000000000000")]);
    strict(&text);
    Ok((text, transport.sections().to_vec()))
}

fn publish(offer: &str) -> (String, Vec<Section>) {
    answer(Role::Publish, offer).unwrap()
}

/// RFC 8866 §5, §9: what every text that we write must be.
fn strict(text: &str) {
    assert!(text.ends_with("\r\n") && !text.replace("\r\n", "").contains(['\r', '\n']));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "v=0");
    let origin: Vec<&str> = lines[1].split(' ').collect();
    assert!(lines[1].starts_with("o=- ") && origin.len() == 6 && origin[3..5] == ["IN", "IP4"], "{}", lines[1]);
    assert!(origin[1].parse::<u64>().unwrap() < 1 << 62, "RFC 9429 §5.2.1");
    assert_eq!(&lines[2..4], ["s=-", "t=0 0"]);
    for line in &lines {
        let (kind, value) = line.split_once('=').unwrap();
        assert!(kind.len() == 1 && !value.is_empty() && !value.ends_with(' '), "{line:?}");
    }
}

/// The lines of the n-th m-line.
fn section(text: &str, n: usize) -> Vec<&str> {
    let mut at = text.lines().skip_while(|l| !l.starts_with("m="));
    let mut found = None;
    let mut lines = Vec::new();
    for line in &mut at {
        if line.starts_with("m=") {
            found = Some(found.map_or(0, |f| f + 1));
        }
        if found == Some(n) {
            lines.push(line);
        }
    }
    lines
}

fn value<'a>(lines: &[&'a str], start: &str) -> Option<&'a str> {
    lines.iter().find_map(|l| l.strip_prefix(start))
}

const HEAD: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.10\r\ns=-\r\nt=0 0\r\n";
const TRANSPORT: &str = "a=ice-ufrag:kT3q\r\na=ice-pwd:m0RZy8cVd1uQpL5sXb2wEfGh\r\na=setup:actpass\r\na=rtcp-mux\r\n\
    a=fingerprint:sha-256 7A:11:0C:5E:93:D4:2F:88:41:BC:6D:07:E2:59:A0:3B:C8:14:F7:66:9E:2D:B1:50:8C:43:DA:75:1E:F0:A9:32\r\n";

fn video(payload: &str) -> String {
    let pts: Vec<&str> = payload.lines().filter_map(|l| l.strip_prefix("a=rtpmap:")?.split(' ').next()).collect();
    let line = format!("m=video 9 UDP/TLS/RTP/SAVPF {}\r\n", pts.join(" "));
    format!("{HEAD}a=group:BUNDLE v\r\n{line}c=IN IP4 0.0.0.0\r\na=mid:v\r\na=sendonly\r\n{TRANSPORT}{payload}")
}

/// Case sdp-01, RFC 6184 §8.2.2.
#[test]
fn the_level_of_h264_is_no_key() {
    let fmtp = |lines: &[&str], pt: u8| {
        let text = value(lines, &format!("a=fmtp:{pt} ")).unwrap();
        let id = text.split(';').find_map(|p| p.strip_prefix("profile-level-id=")).unwrap();
        u32::from_str_radix(id, 16).unwrap()
    };
    let (text, sections) = publish(include_str!("../cases/sdp-01/offer-high-level.sdp"));
    let lines = section(&text, 1);
    assert_eq!(lines[0].split(' ').skip(3).collect::<Vec<_>>(), ["96", "97", "98", "99"]);
    assert_eq!((fmtp(&lines, 96) >> 8, fmtp(&lines, 98) >> 8), (0x640c, 0x42e0));
    assert!(lines.contains(&"a=fmtp:97 apt=96") && lines.contains(&"a=fmtp:99 apt=98"));
    assert_eq!(sections[1].formats.len(), 2);
    assert_eq!(sections[1].formats[0].rtx_pt, Some(97));
    assert_ne!(sections[1].formats[0].format, sections[1].formats[1].format);

    let (text, _) = publish(include_str!("../cases/sdp-01/offer-low-level.sdp"));
    assert_eq!(fmtp(&section(&text, 1), 102), 0x42e034, "our own level: directions may differ");
    let (text, _) = publish(include_str!("../cases/sdp-01/offer-no-asymmetry.sdp"));
    assert!(fmtp(&section(&text, 1), 102) & 0xff <= 0x15);
    let (text, upper) = publish(include_str!("../cases/sdp-01/offer-uppercase-hex.sdp"));
    assert_eq!(fmtp(&section(&text, 1), 102) >> 8, 0x42e0);
    assert_eq!(upper[1].formats[0].format, sections[1].formats[1].format, "the same profile by another text");
}

/// A refused payload type takes its retransmissions along.
#[test]
fn a_refused_format_loses_its_rtx() {
    let (text, _) = publish(&video(
        "a=rtpmap:96 H264/90000\r\na=fmtp:96 profile-level-id=f4001f\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n\
         a=rtpmap:98 VP8/90000\r\na=rtpmap:99 rtx/90000\r\na=fmtp:99 apt=98\r\n",
    ));
    assert_eq!(section(&text, 0)[0].split(' ').skip(3).collect::<Vec<_>>(), ["98", "99"]);
    assert!(!text.contains(":96 ") && !text.contains(":97 "));
}

/// Case sdp-06, RFC 9143 §6, §9.2; RFC 8839 §5.4; RFC 8866 §6.6.
#[test]
fn gstreamer_offers_are_answered() {
    let (text, sections) = publish(include_str!("../cases/sdp-06/gst-offer.sdp"));
    assert_eq!(sections[0].mid, "video0");
    let lines = section(&text, 0);
    assert!(lines.contains(&"a=mid:video0") && lines.contains(&"a=recvonly") && lines.contains(&"a=setup:passive"));
    assert!(lines.iter().filter(|l| l.starts_with("a=candidate:")).count() == 2);
    assert!(lines.contains(&"a=end-of-candidates"));
    assert!(!sections[0].twcc, "transport-cc without its extension says nothing");

    let (text, sections) = publish(include_str!("../cases/sdp-06/gst-offer-no-mid-ext.sdp"));
    assert!(text.contains("a=group:BUNDLE video0 audio1\r\n"));
    let audio = section(&text, 1);
    assert!(!audio[0].starts_with("m=audio 0 "), "port 0 with bundle-only is no refusal");
    assert!(audio.contains(&"a=rtpmap:97 opus/48000/2") && audio.contains(&"a=recvonly"));
    assert!(audio.contains(&"a=mid:audio1"));
    assert_eq!(sections[1].formats[0].format.codec, Codec::Opus);
    // The password and fingerprint of the bundle are the first section's.
    assert_eq!(value(&audio, "a=ice-ufrag:"), value(&section(&text, 0), "a=ice-ufrag:"));
}

/// Case sdp-09, RFC 8285 §6.
#[test]
fn extmap_allow_mixed_is_answered_where_it_stands() {
    let payload = "a=rtpmap:96 VP8/90000\r\n";
    let offer = video(payload);
    assert!(!publish(&offer).0.contains("extmap-allow-mixed"));
    let session = offer.replace("t=0 0\r\n", "t=0 0\r\na=extmap-allow-mixed\r\n");
    let (text, _) = publish(&session);
    assert!(text.split("m=").next().unwrap().contains("a=extmap-allow-mixed\r\n"));
    let media = offer.replace(payload, &format!("a=extmap-allow-mixed\r\n{payload}"));
    let (text, _) = publish(&media);
    assert!(!text.split("m=").next().unwrap().contains("mixed") && section(&text, 0).contains(&"a=extmap-allow-mixed"));
}

/// Case sdp-12, RFC 6184 §8.1, RFC 8866 §6.15.
#[test]
fn odd_fmtp_values_cost_at_most_their_payload_type() {
    let (text, sections) = publish(&video(
        "a=rtpmap:96 H265/90000\r\na=fmtp:96 level-id=180;profile-id=1;tier-flag=0;tx-mode=SRST\r\n\
         a=rtpmap:97 H264/90000\r\na=fmtp:97 profile-level-id=\r\n\
         a=rtpmap:98 H264/90000\r\na=fmtp:98 ; profile-level-id=42e01f ;  packetization-mode=1 ; x-unknown=7;\r\n\
         a=rtpmap:99 H264/90000\r\na=fmtp:99 profile-level-id=zz\r\n\
         a=rtpmap:100 VP9/90000\r\na=fmtp:100 profile-id=\r\n\
         a=rtpmap:101 VP9/90000\r\na=fmtp:101 profile-id=2\r\na=rtpmap:102 VP9/90000\r\na=fmtp:102 profile-id=1\r\n\
         a=rtpmap:103 VP8/90000\r\na=fmtp:103\r\na=rtpmap:104 AV1/90000\r\na=fmtp:104 level-idx=5;profile=0;tier=0\r\n",
    ));
    let pts: Vec<u8> = sections[0].formats.iter().map(|f| f.pt).collect();
    // The first choice is not one of ours: VP8 and H.264 go first, the rest in the offered order.
    assert_eq!(pts, [103, 97, 98, 100, 101, 104]);
    assert_eq!(sections[0].formats[2].format.packetization, 1);
    assert_eq!(sections[0].formats[3].format, Format { codec: Codec::Vp9, profile: 0, packetization: 0 });
    assert_eq!(sections[0].formats[4].format.profile, 2);
    assert!(text.contains("a=fmtp:104 profile=0;level-idx=5;tier=0\r\n"));
}

/// Case sdp-14, RFC 8866 §5.2, §5.3: read leniently. That we write strictly is checked for every answer here.
#[test]
fn session_lines_of_real_devices_are_read() {
    let offer = video("a=rtpmap:96 VP8/90000\r\n");
    let origin = "o=- 1 1 IN IP4 192.0.2.10\r\n";
    for odd in [
        offer.replace(origin, "o=- 1 1 IN IPV4 192.0.2.10\r\n"),
        offer.replace(origin, "o=- 1 1 IP4 IN 192.0.2.10\r\n"),
        offer.replace(origin, "o=-\r\n"),
        offer.replace(origin, ""),
        offer.replace("s=-\r\n", "s=\r\n"),
        offer.replace("s=-\r\n", ""),
        offer.replace("s=-\r\n", "s= \r\n"),
        offer.replace("t=0 0\r\n", ""),
        offer.replace("t=0 0\r\n", "t=3034423619 3042462419\r\n"),
        offer.replace("\r\n", "\n"),
        offer.replace("VP8/90000", "vp8/90000"),
        format!("{offer}\r\n\r\n"),
        offer.trim_end().to_owned(),
        offer.replace("c=IN IP4 0.0.0.0\r\n", "i=camera\r\nc=IN IP4 0.0.0.0\r\nb=AS:2500\r\nb=TIAS:1\r\nk=prompt\r\n"),
        offer.replace("a=sendonly\r\n", ""),
        offer.replace("UDP/TLS/RTP/SAVPF", "RTP/SAVPF"),
    ] {
        publish(&odd);
    }
    for (bad, line) in [
        (offer.replace("v=0", "v=1"), 1),
        (offer.replace("s=-", "nonsense"), 3),
        (offer.replace("m=video 9 UDP/TLS/RTP/SAVPF 96", "m=video"), 6),
        (offer.replace("m=video 9", "m=video 70000"), 6),
        (String::new(), 1),
    ] {
        let Err(SdpRefusal::Malformed { line: at, .. }) = answer(Role::Publish, &bad) else { panic!("{bad}") };
        assert_eq!(at, line, "{bad}");
    }
}

/// RFC 8827 §6.5, case sec-06; RFC 8839 §5.4; RFC 8842 §5; RFC 8445 §6.1.1; RFC 9143 §7.2.
#[test]
fn what_cannot_be_served_is_refused_with_its_reason() {
    let offer = video("a=rtpmap:96 VP8/90000\r\n");
    let fingerprint = offer.lines().find(|l| l.starts_with("a=fingerprint")).unwrap();
    let refusal = |offer: &str| answer(Role::Publish, offer).unwrap_err();
    assert_eq!(refusal(&offer.replace(&format!("{fingerprint}\r\n"), "")), SdpRefusal::NoFingerprint);
    assert!(matches!(refusal(&offer.replace("sha-256 7A", "sha-1 7A")), SdpRefusal::Unsupported(_)));
    assert!(matches!(
        refusal(&offer.replace("a=ice-pwd:m0RZy8cVd1uQpL5sXb2wEfGh\r\n", "")),
        SdpRefusal::Malformed { .. }
    ));
    assert!(matches!(refusal(&offer.replace("a=ice-ufrag:kT3q", "a=ice-ufrag:kT3")), SdpRefusal::Malformed { .. }));
    assert!(matches!(refusal(&offer.replace("a=rtcp-mux\r\n", "")), SdpRefusal::Unsupported(_)));
    assert!(matches!(refusal(&offer.replace("actpass", "holdconn")), SdpRefusal::Unsupported(_)));
    assert!(matches!(refusal(&offer.replace("s=-\r\n", "s=-\r\na=ice-lite\r\n")), SdpRefusal::Unsupported(_)));
    assert!(matches!(refusal(&offer.replace("sendonly", "recvonly")), SdpRefusal::Unsupported(_)));
    assert!(matches!(refusal(&offer.replace("m=video 9", "m=video 0")), SdpRefusal::Unsupported(_)));
    assert_eq!(refusal(&offer.replace("VP8", "H265")), SdpRefusal::NoCommonCodec);
    assert!(matches!(refusal(HEAD), SdpRefusal::Unsupported(_)));
    let second = section(&offer, 0).join("\r\n").replace("a=mid:v", "a=mid:w");
    let unbundled = format!("{}{second}\r\n", offer.replace("a=group:BUNDLE v\r\n", ""));
    assert!(matches!(refusal(&unbundled), SdpRefusal::Unsupported(_)));
    let twins = format!("{}{}\r\n", offer.replace("BUNDLE v", "BUNDLE v w"), second.replace("a=mid:w", "a=mid:v"));
    assert!(matches!(refusal(&twins), SdpRefusal::Malformed { .. }));
    // One of several fingerprints is enough, and roles are answered.
    let two = offer.replace(fingerprint, &format!("a=fingerprint:sha-1 00:11\r\n{fingerprint}"));
    publish(&two);
    assert!(publish(&offer.replace("actpass", "passive")).0.contains("a=setup:active\r\n"));
    assert!(publish(&offer.replace("actpass", "active")).0.contains("a=setup:passive\r\n"));
    // A single section needs neither mid nor group.
    let bare = offer.replace("a=group:BUNDLE v\r\n", "").replace("a=mid:v\r\n", "");
    let (text, sections) = publish(&bare);
    assert!(!text.contains("a=mid") && !text.contains("BUNDLE"));
    assert_eq!(sections[0].mid, "0");
}

/// What is not served stays in its place with port 0 and out of the bundle (RFC 3264 §6, RFC 9143 §7.3.3).
#[test]
fn words_that_an_answer_repeats_are_visible_ascii() {
    let offer = |media: &str, protocol: &str, format: &str, mid: &str| {
        video("a=rtpmap:96 VP8/90000\r\n") + &format!("m={media} 9 {protocol} {format}\r\na=mid:{mid}\r\n")
    };
    assert!(answer(Role::Publish, &offer("application", "UDP/DTLS/SCTP", "webrtc-datachannel", "d+1")).is_ok());
    let long = "x".repeat(256);
    for bad in ["a\u{486}b", "a\u{7f}b", "a\u{1}b", "\u{e9}", &long] {
        for refused in [
            offer(bad, "UDP", "1", "d"),
            offer("application", bad, "1", "d"),
            offer("application", "UDP", bad, "d"),
            offer("application", "UDP", "1", bad),
        ] {
            let refusal = answer(Role::Publish, &refused).unwrap_err();
            assert!(matches!(refusal, SdpRefusal::Malformed { .. }), "{bad:?}: {refusal}");
        }
    }
}

#[test]
fn unserved_sections_keep_their_places() {
    let offer = video("a=rtpmap:96 VP8/90000\r\n").replace("BUNDLE v", "BUNDLE d v x");
    let data = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:d\r\na=sctp-port:5000\r\nm=video";
    let other = "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:x\r\na=rtcp-mux\r\n";
    let offer = format!("{}{other}", offer.replace("m=video", data));
    let (text, sections) = publish(&offer);
    assert!(text.contains("a=group:BUNDLE v\r\n"));
    assert_eq!(section(&text, 0)[0], "m=application 0 UDP/DTLS/SCTP webrtc-datachannel");
    assert_eq!(section(&text, 2)[0], "m=audio 0 UDP/TLS/RTP/SAVPF 0");
    // Candidates are in the first accepted section (RFC 9143 §7.3.2).
    assert!(section(&text, 1).contains(&"a=end-of-candidates") && !section(&text, 0).contains(&"a=end-of-candidates"));
    assert_eq!(sections.iter().map(|s| (s.mid.as_str(), s.formats.len())).collect::<Vec<_>>(), [("v", 1), ("x", 0)]);
}

#[test]
fn a_viewer_gets_names_only_in_filled_sections() {
    let one = section(&video("a=rtpmap:96 VP8/90000\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n"), 0).join("\r\n");
    let one = one.replace("sendonly", "recvonly");
    let two = one.replace("a=mid:v", "a=mid:w");
    let three = one.replace("a=mid:v", "a=mid:y").replace("recvonly", "sendonly");
    let offer = format!("{HEAD}a=group:BUNDLE v w y\r\n{one}\r\n{two}\r\n{three}\r\n");
    let (text, sections) = answer(Role::Play, &offer).unwrap();
    let (filled, free, inactive) = (section(&text, 0), section(&text, 1), section(&text, 2));
    let (ssrc, rtx) = (sections[0].ssrc.unwrap(), sections[0].rtx_ssrc.unwrap());
    assert!(filled.contains(&"a=sendonly") && filled.contains(&"a=msid:ann TR_000000000000"));
    assert!(filled.contains(&format!("a=ssrc-group:FID {ssrc} {rtx}").as_str()));
    assert!(filled.contains(&format!("a=ssrc:{ssrc} msid:ann TR_000000000000").as_str()));
    assert!(free.contains(&"a=sendonly") && !free.iter().any(|l| l.contains("msid")));
    assert!(value(&free, &format!("a=ssrc:{} cname:", sections[1].ssrc.unwrap())).is_some());
    assert!(inactive.contains(&"a=inactive") && !inactive.iter().any(|l| l.starts_with("a=ssrc")));
    assert!(sections[2].formats.is_empty() && sections[2].ssrc.is_none());
    let mut all: Vec<u32> = sections.iter().flat_map(|s| [s.ssrc, s.rtx_ssrc]).flatten().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4);
}

const RID_EXTENSIONS: &str = "a=extmap:10 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id\r\n\
                              a=extmap:11 urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id\r\n";

/// RFC 8853 §5.3.2, RFC 8851 §6; without the rid extension (RFC 8852) none can be told apart.
#[test]
fn layers_are_answered_in_the_order_of_the_offer() {
    let layers = "a=rtpmap:96 VP8/90000\r\na=rid:q send\r\na=rid:h send\r\na=rid:f send\r\na=simulcast:send q;h;f\r\n";
    let (text, sections) = publish(&video(&format!("{RID_EXTENSIONS}{layers}")));
    let lines = section(&text, 0);
    let rids: Vec<&str> = lines.iter().copied().filter(|l| l.contains("rid:") || l.contains("simulcast")).collect();
    assert_eq!(rids, ["a=rid:q recv", "a=rid:h recv", "a=rid:f recv", "a=simulcast:recv q;h;f"]);
    assert!(RID_EXTENSIONS.lines().all(|extmap| lines.contains(&extmap)), "{text}");
    assert_eq!(sections[0].layers, ["q", "h", "f"]);
    let (text, sections) = publish(&video(layers));
    assert!(!text.contains("simulcast") && sections[0].layers.is_empty());
}

#[test]
fn paused_layers_old_drafts_and_more_layers_than_are_taken() {
    let rids: String = ["a", "b", "c", "d", "e"].map(|rid| format!("a=rid:{rid} send\r\n")).concat();
    for (line, want) in [
        ("send ~a;b", &["a", "b"][..]),
        (" send rid=c;a;b", &["c", "a", "b"]),
        ("recv x;y send a,e;d", &["a", "d"]),
        ("send a;b;c;d;e", &["a", "b", "c"]),
        ("send a;a;unknown;b", &["a", "b"]),
        ("send b", &["b"]),
        ("send unknown", &[]),
    ] {
        let offered = format!("a=rtpmap:96 VP8/90000\r\n{RID_EXTENSIONS}{rids}a=simulcast:{line}\r\n");
        let (text, sections) = publish(&video(&offered));
        assert_eq!(sections[0].layers, want, "{line}");
        let answered = (!want.is_empty()).then(|| format!("a=simulcast:recv {}", want.join(";")));
        assert_eq!(section(&text, 0).iter().find(|l| l.contains("simulcast")).map(|l| (*l).to_owned()), answered);
    }
}

/// Simulcast as Plan B writes it: a group of SSRCs, each with its retransmissions (RFC 5576 §4.2, RFC 4588 §8.1).
#[test]
fn layers_by_ssrc_alone_are_taken_and_nothing_of_them_is_answered() {
    let sim = "a=rtpmap:96 VP8/90000\r\na=ssrc-group:FID 10 11\r\na=ssrc-group:FID 20 21\r\n\
               a=ssrc-group:SIM 10 20 30\r\na=ssrc:10 cname:x\r\na=ssrc:30 cname:x\r\n";
    let (text, sections) = publish(&video(sim));
    assert_eq!(sections[0].layers, ["0", "1", "2"]);
    assert!(!text.contains("simulcast") && !text.contains("a=rid"));
    let (_, sections) = publish(&video("a=rtpmap:96 VP8/90000\r\na=ssrc-group:FID 10 11\r\na=ssrc-group:SIM 10\r\n"));
    assert!(sections[0].layers.is_empty(), "one layer is none");
}

/// One number means one thing in a bundle (RFC 9143 §9.1, §9.2).
#[test]
fn numbers_with_two_meanings_are_dropped_where_they_come_second() {
    let audio = format!(
        "m=audio 9 UDP/TLS/RTP/SAVPF 96 97\r\na=mid:a\r\na=sendonly\r\n{TRANSPORT}a=rtpmap:96 opus/48000/2\r\n\
         a=rtpmap:97 opus/48000/2\r\na=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level\r\n\
         a=extmap:2 urn:ietf:params:rtp-hdrext:sdes:mid\r\n"
    );
    let offer = video("a=rtpmap:96 VP8/90000\r\na=extmap:1 urn:ietf:params:rtp-hdrext:sdes:mid\r\n");
    let (_, sections) = publish(&format!("{}{audio}", offer.replace("BUNDLE v", "BUNDLE v a")));
    assert_eq!(sections[1].formats.iter().map(|f| f.pt).collect::<Vec<_>>(), [97]);
    assert_eq!((sections[0].extensions.mid, sections[1].extensions.audio_level), (Some(1), None));
    assert_eq!(sections[1].extensions.mid, None);
}

/// Case ops-04: what is too big is named, and a large honest offer is not.
#[test]
fn floods_are_refused_by_the_limit_they_meet() {
    let base = include_str!("../cases/ops-04/base.sdp");
    let at = base.find("m=").unwrap();
    let (head, media) = base.split_at(at);
    let many = |n: usize, line: &dyn Fn(usize) -> String| (0..n).map(line).collect::<String>();
    let candidates =
        many(1_000, &|i| format!("a=candidate:{i} 1 udp {} 192.0.2.1 {} typ host\r\n", 2_000_000_000 - i, 1024 + i));
    let lines = |i: usize| {
        format!(
            "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:{i}\r\na=sendonly\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n"
        )
    };
    let formats: Vec<String> = (0..20_000).map(|i| (96 + i % 32).to_string()).collect();
    for (what, flood) in [
        ("candidates", format!("{base}{candidates}")),
        ("m-lines", format!("{head}{}", many(1000, &lines))),
        ("bytes", format!("{head}a=x:{}\r\n{media}", "A".repeat(2_000_000))),
        ("formats of one m-line", format!("{head}m=video 9 UDP/TLS/RTP/SAVPF {}\r\na=mid:0\r\n", formats.join(" "))),
        ("SSRCs of one section", format!("{base}{}", many(900, &|i| format!("a=ssrc:{i} cname:x\r\n")))),
        ("a=rid of one section", format!("{base}{}", many(500, &|i| format!("a=rid:r{i} send\r\n")))),
        ("groups", format!("{head}{}{media}", many(900, &|i| format!("a=group:BUNDLE {i}\r\n")))),
        ("bytes", format!("v=0{}", "x".repeat(1_000_000))),
        ("lines in one section", format!("{base}{}", "a=x\r\n".repeat(5_000))),
    ] {
        match answer(Role::Publish, &flood) {
            Err(SdpRefusal::TooBig { what: found, limit }) => assert_eq!(found, what, "limit {limit}"),
            other => panic!("{what}: {:?}", other.map(|_| ())),
        }
    }
    // A viewer with 120 sections, about 60 KB.
    let rest = "a=rtcp-rsize\r\na=rtpmap:96 VP8/90000\r\na=rtcp-fb:96 nack\r\na=rtcp-fb:96 nack pli\r\n\
        a=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n";
    let sections =
        many(120, &|i| format!("m=video 9 UDP/TLS/RTP/SAVPF 96 97\r\na=mid:{i}\r\na=recvonly\r\n{TRANSPORT}{rest}"));
    let mids = many(120, &|i| format!(" {i}"));
    let (_, sections) = answer(Role::Play, &format!("{HEAD}a=group:BUNDLE{mids}\r\n{sections}")).unwrap();
    assert_eq!(sections.iter().filter(|s| s.ssrc.is_some() && s.nack).count(), 120);
}

const REAL: [&str; 6] = [
    include_str!("../cases/ops-04/browser-like.sdp"),
    include_str!("../cases/sdp-01/offer-high-level.sdp"),
    include_str!("../cases/sdp-01/offer-no-asymmetry.sdp"),
    include_str!("../cases/sdp-06/gst-offer.sdp"),
    include_str!("../cases/sdp-06/gst-offer-no-mid-ext.sdp"),
    include_str!("../cases/ops-04/base.sdp"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Real offers with bytes changed, cut, doubled: an answer that is strict, or a refusal.
    #[test]
    fn mangled_offers_are_answered_or_refused(
        which in 0usize..REAL.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5, any::<char>()), 1..8),
        play in any::<bool>(),
    ) {
        let mut lines: Vec<String> = REAL[which].lines().map(str::to_owned).collect();
        for (at, kind, c) in edits {
            let index = at.index(lines.len());
            match kind {
                0 => { lines.remove(index); if lines.is_empty() { lines.push(String::new()) } }
                1 => { let copy = lines[index].clone(); lines.insert(index, copy); }
                2 => lines[index].push(c),
                3 => { let keep = lines[index].chars().count() / 2; lines[index] = lines[index].chars().take(keep).collect(); }
                _ => { let other = lines.len() / 2; lines.swap(index, other) }
            }
        }
        let _ = answer(if play { Role::Play } else { Role::Publish }, &lines.join("\r\n"));
    }
}
