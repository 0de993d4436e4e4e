//! The egress as its viewer sees it: everything is opened with the viewer's keys and read from the wire.

mod support {
    pub mod viewer;
}

use proptest::prelude::*;
use rondo_media::packet::Packet;
use rondo_media::send::{Feedback, Forwarded, RtcpRefused};
use rondo_media::transport::{SectionFormat, SrtpProfile};
use rondo_media::units::Why;
use rondo_media::wire::rtcp::{
    Compound, FirEntry, Packet as Rtcp, ReportBlock, SdesKind, TwccWriter, write_bye, write_fir, write_nack, write_pli,
    write_receiver_report, write_remb,
};
use std::collections::BTreeSet;
use std::time::Duration;
use support::viewer::*;

const GCM: SrtpProfile = SrtpProfile::AeadAes128Gcm;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// With video flowing from source packet 1,000, of which 1,000 was sent.
fn watching(profile: SrtpProfile) -> (Pair, u16) {
    let mut pair = Pair::new(profile, &sections(), 7);
    let t0 = pair.t0;
    pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
    pair.egress.forward(t0, VIDEO, 0, clock(t0, 0), &[key_packet(t0, 1_000, 0)], &mut pair.sent);
    let (rtp, _) = pair.receive();
    (pair, rtp[0].seq)
}

fn forward(pair: &mut Pair, packets: &[Packet]) -> Forwarded {
    let t0 = pair.t0;
    pair.egress.forward(t0, VIDEO, 0, clock(t0, 0), packets, &mut pair.sent)
}

fn seqs(pair: &mut Pair) -> Vec<u16> {
    pair.receive().0.iter().map(|p| p.seq).collect()
}

#[test]
fn a_viewer_opens_what_was_forwarded_in_every_profile() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile, &sections(), 3);
        let t0 = pair.t0;
        pair.egress.assign(t0, AUDIO, Some(OPUS)).unwrap();
        pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
        let sound = [packet(t0, 500, 48_000), packet(t0, 501, 48_960)];
        let forwarded = pair.egress.forward(t0, AUDIO, 0, clock(t0, 48_000), &sound, &mut pair.sent);
        assert_eq!((forwarded.packets, forwarded.key_frame, forwarded.wants_key_frame), (2, false, false));
        let picture = [key_packet(t0, 900, 90_000), Packet { marker: true, ..packet(t0, 901, 90_000) }];
        let forwarded = pair.egress.forward(t0, VIDEO, 0, clock(t0, 90_000), &picture, &mut pair.sent);
        assert_eq!((forwarded.packets, forwarded.key_frame, forwarded.wants_key_frame), (2, true, false));
        let (rtp, rtcp) = pair.receive();
        assert_eq!((rtp.len(), rtcp.len()), (4, 2), "a report at once for each stream");
        for (got, sent) in rtp.iter().zip(sound.iter().chain(&picture)) {
            assert_eq!((&got.payload[..], got.marker), (&sent.payload[..], sent.marker));
        }
        assert_eq!([rtp[0].ssrc, rtp[2].ssrc], [AUDIO_SSRC, VIDEO_SSRC]);
        assert_eq!([rtp[0].pt, rtp[2].pt], [111, VP8_PT]);
        assert_eq!(rtp[1].rtp_time.wrapping_sub(rtp[0].rtp_time), 960);
        assert_eq!(rtp[3].seq, rtp[2].seq.wrapping_add(1));
        assert!(rtp.iter().all(|p| p.seq < 0x8002), "starts are below 2^15");
        // Elements in order: abs-send-time (2), twcc (3), audio level (1), mid (4); twcc numbers run over both streams.
        for (i, got) in rtp.iter().enumerate() {
            assert_eq!((got.header[16], got.header[20], got.header[21..23].to_vec()), (0x22, 0x31, vec![0, i as u8]));
        }
        assert_eq!(rtp[0].header[23..27], [0x10, 0x80 | 20, 0x40, b'0']);
        assert_eq!(rtp[2].header[23..25], [0x40, b'1']);
        assert_eq!(rtp[2].header.len(), rtp[3].header.len(), "equal headers keep runs whole");
        let bytes: usize = pair.egress.stats().bytes as usize;
        let tag = if profile == SrtpProfile::Aes128CmSha1_80 { 10 } else { 16 };
        assert_eq!(bytes, rtp.iter().map(|p| p.header.len() + p.payload.len() + tag).sum::<usize>());
    }
}

/// The same through code that is not ours: str0m's ciphers, IVs and MACs, with session keys from its own AES.
#[test]
fn str0m_opens_what_was_forwarded() {
    use str0m::crypto::{AeadAes128Gcm, AeadAes256Gcm, Aes128CmSha1_80, from_feature_flags};
    let crypto = from_feature_flags();
    let derive = |key: &[u8], salt: &[u8], label: u8, len: usize| -> Vec<u8> {
        let mut block = [0u8; 16];
        block[..salt.len()].copy_from_slice(salt);
        block[7] ^= label;
        let mut out = Vec::new();
        while out.len() < len {
            let mut stream = [0u8; 32];
            match key.len() {
                32 => crypto.srtp_provider.srtp_aes_256_ecb_round(key, &block, &mut stream),
                _ => crypto.srtp_provider.srtp_aes_128_ecb_round(key, &block, &mut stream),
            }
            out.extend_from_slice(&stream[..16]);
            block[15] += 1;
        }
        out.truncate(len);
        out
    };
    for profile in PROFILES {
        let mut pair = Pair::new(profile, &sections(), 4);
        let (ours, _) = keys(profile);
        let t0 = pair.t0;
        pair.egress.assign(t0, AUDIO, Some(OPUS)).unwrap();
        pair.egress.forward(t0, AUDIO, 0, clock(t0, 0), &[packet(t0, 77, 0)], &mut pair.sent);
        let datagrams = pair.sent.take();
        let datagram = &datagrams[0];
        let header_len = 16 + 4 * usize::from(datagram[15]);
        let seq = u16::from_be_bytes([datagram[2], datagram[3]]);
        let (header, body) = datagram.split_at(header_len);
        let key = derive(&ours.send_key, &ours.send_salt, 0, ours.send_key.len());
        let salt = derive(&ours.send_key, &ours.send_salt, 2, ours.send_salt.len());
        let mut plain = vec![0; body.len()];
        let len = match profile {
            SrtpProfile::AeadAes256Gcm => {
                let iv = AeadAes256Gcm::rtp_iv(salt.try_into().unwrap(), AUDIO_SSRC, 0, seq);
                let cipher = crypto.srtp_provider.aead_aes_256_gcm();
                cipher.create_cipher(key.try_into().unwrap(), false).decrypt(&iv, &[header], body, &mut plain).unwrap()
            }
            SrtpProfile::AeadAes128Gcm => {
                let iv = AeadAes128Gcm::rtp_iv(salt.try_into().unwrap(), AUDIO_SSRC, 0, seq);
                let cipher = crypto.srtp_provider.aead_aes_128_gcm();
                cipher.create_cipher(key.try_into().unwrap(), false).decrypt(&iv, &[header], body, &mut plain).unwrap()
            }
            SrtpProfile::Aes128CmSha1_80 => {
                let auth = derive(&ours.send_key, &ours.send_salt, 1, 20);
                let (signed, tag) = datagram.split_at(datagram.len() - 10);
                let hmac = |key: &[u8], parts: &[&[u8]]| crypto.sha1_hmac_provider.sha1_hmac(key, parts);
                assert!(Aes128CmSha1_80::rtp_verify(hmac, &auth, signed, u64::from(seq), tag));
                let iv = Aes128CmSha1_80::rtp_iv(salt.try_into().unwrap(), AUDIO_SSRC, u64::from(seq));
                let cipher = crypto.srtp_provider.aes_128_cm_sha1_80();
                let body = &body[..body.len() - 10];
                cipher.create_cipher(key.try_into().unwrap(), false).decrypt(&iv, body, &mut plain).unwrap();
                body.len()
            }
        };
        assert_eq!(&plain[..len], [77; 100], "{profile:?}");
    }
}

#[test]
fn what_a_section_cannot_carry_is_refused_and_changes_nothing() {
    let (mut pair, first) = watching(GCM);
    let t0 = pair.t0;
    assert!(pair.egress.supports(VIDEO, VP8) && !pair.egress.supports(VIDEO, H264) && !pair.egress.supports(9, VP8));
    let refused = pair.egress.assign(t0, VIDEO, Some(H264)).unwrap_err();
    assert_eq!((refused.section, refused.format), (VIDEO, H264));
    assert!(pair.egress.assign(t0, 9, Some(VP8)).is_err());
    forward(&mut pair, &[packet(t0, 1_001, 0)]);
    assert_eq!(seqs(&mut pair), [first + 1]);
    pair.egress.assign(t0, VIDEO, None).unwrap();
    assert_eq!(forward(&mut pair, &[key_packet(t0, 1_002, 0)]), Forwarded::default());
    assert_eq!(pair.egress.deadline(), None, "nothing is reported of a free section");
}

#[test]
fn video_begins_with_a_key_frame_and_takes_what_overtook_it() {
    let mut pair = Pair::new(GCM, &sections(), 7);
    let t0 = pair.t0;
    pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
    assert!(pair.egress.waiting_for_key_frame(VIDEO) && !pair.egress.waiting_for_key_frame(AUDIO));
    let waiting = forward(&mut pair, &[packet(t0, 10, 0), packet(t0, 11, 0)]);
    assert_eq!(waiting, Forwarded { wants_key_frame: true, ..Forwarded::default() });
    // 14 of the key frame came before its first packet, 13; 12 belongs to the picture before.
    let batch = [packet(t0, 12, 0), packet(t0, 14, 3_000), key_packet(t0, 13, 3_000), packet(t0, 15, 3_000)];
    let begun = forward(&mut pair, &batch);
    assert_eq!((begun.packets, begun.key_frame, begun.wants_key_frame), (3, true, false));
    assert!(!pair.egress.waiting_for_key_frame(VIDEO));
    let (rtp, _) = pair.receive();
    let order: Vec<_> = rtp.iter().map(|p| (p.seq - rtp[1].seq, p.payload[0])).collect();
    assert_eq!(order, [(1, 14), (0, 13), (2, 15)]);
}

/// Case rtcp-01: a compound is lost as a whole where its SDES is misread, and its reports with it.
#[test]
fn every_legal_compound_of_a_viewer_is_taken() {
    let (mut pair, _) = watching(GCM);
    for line in include_str!("cases/rtcp-01/packets.jsonl").lines().filter(|line| !line.is_empty()) {
        let hex = line.split_once("\"hex\": \"").unwrap().1.split_once('"').unwrap().0;
        let plain: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        // A request behind it is heard only if all before it was read.
        let datagram = pair.seal(|out| {
            out.extend(&plain);
            write_pli(out, 9, VIDEO_SSRC);
        });
        let mut feedback = Vec::new();
        let t0 = pair.t0;
        pair.egress
            .receive_rtcp(t0, &datagram, &mut pair.sent, &mut feedback)
            .unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(feedback, [Feedback::KeyFrameWanted { section: VIDEO }], "{line}");
    }
    assert_eq!(pair.egress.stats().rtcp_bad, 0);
}

/// Case rtp-02: the viewer counts no packet as lost where the publisher only padded, and every lost one where it lost.
#[test]
fn padding_leaves_no_hole_and_loss_does() {
    let (mut pair, first) = watching(GCM);
    let t0 = pair.t0;
    forward(&mut pair, &[padding(t0, 1_001, 0), padding(t0, 1_002, 0), packet(t0, 1_003, 0), packet(t0, 1_005, 0)]);
    assert_eq!(seqs(&mut pair), [first + 1, first + 3]);
    forward(&mut pair, &[packet(t0, 1_004, 0), packet(t0, 1_004, 0)]);
    assert_eq!(seqs(&mut pair), [first + 2], "repaired once");
    // Padding that comes after its successor: its hole is open already, and is filled.
    forward(&mut pair, &[packet(t0, 1_007, 0), padding(t0, 1_006, 0)]);
    let (rtp, _) = pair.receive();
    assert_eq!(rtp.iter().map(|p| (p.seq, p.payload.len())).collect::<Vec<_>>(), [(first + 5, 100), (first + 4, 0)]);
}

#[test]
fn a_pause_leaves_no_hole_and_video_resumes_with_a_key_frame() {
    let (mut pair, first) = watching(GCM);
    let t0 = pair.t0;
    pair.egress.pause(VIDEO, true);
    assert_eq!(forward(&mut pair, &[key_packet(t0, 1_001, 0)]), Forwarded::default());
    assert!(!pair.egress.waiting_for_key_frame(VIDEO));
    pair.egress.pause(VIDEO, false);
    assert!(forward(&mut pair, &[packet(t0, 1_002, 0)]).wants_key_frame);
    // The same source: its own clock tells how long the pause was.
    forward(&mut pair, &[key_packet(t0, 1_050, 180_000)]);
    let before = pair.receive();
    assert_eq!(before.0[0].seq, first + 1);
    pair.egress.pause(VIDEO, false);
    forward(&mut pair, &[packet(t0, 1_051, 183_000)]);
    let after = pair.receive();
    assert_eq!((after.0[0].seq, after.0[0].rtp_time.wrapping_sub(before.0[0].rtp_time)), (first + 2, 3_000));
    // Audio begins again with any packet.
    pair.egress.assign(t0, AUDIO, Some(OPUS)).unwrap();
    pair.egress.forward(t0, AUDIO, 0, clock(t0, 0), &[packet(t0, 5, 0)], &mut pair.sent);
    pair.egress.pause(AUDIO, true);
    pair.egress.pause(AUDIO, false);
    pair.egress.forward(t0, AUDIO, 0, clock(t0, 0), &[packet(t0, 90, 960)], &mut pair.sent);
    let (rtp, _) = pair.receive();
    assert_eq!(rtp[1].seq, rtp[0].seq + 1);
}

#[test]
fn another_source_goes_on_in_number_and_time() {
    let (mut pair, first) = watching(GCM);
    let t0 = pair.t0;
    forward(&mut pair, &[packet(t0, 1_001, 0)]);
    let (before, _) = pair.receive();
    pair.egress.assign(t0 + ms(100), VIDEO, Some(VP8)).unwrap();
    assert!(pair.egress.waiting_for_key_frame(VIDEO));
    // Captured 200 ms after the last one, on a clock of its own.
    let other = clock(t0, 4_000_000_000);
    let batch = [key_packet(t0, 42, 4_000_018_000)];
    pair.egress.forward(t0 + ms(210), VIDEO, 0, other, &batch, &mut pair.sent);
    let (after, reports) = pair.receive();
    assert_eq!(after[0].seq, first + 2);
    assert_eq!(after[0].rtp_time.wrapping_sub(before[0].rtp_time), 18_000);
    let Some(Ok(Rtcp::SenderReport(sr))) = Compound::new(&reports[0]).next() else { panic!("no report") };
    // Sent at 210 ms: 10 ms after the capture of that packet.
    assert_eq!(sr.info.rtp_time.wrapping_sub(after[0].rtp_time), 900);
    assert_eq!((sr.info.packets, sr.info.octets), (3, 300));
}

#[test]
fn reports_are_due_and_name_the_viewer() {
    let (mut pair, _) = watching(GCM);
    let t0 = pair.t0;
    forward(&mut pair, &[packet(t0, 1_001, 0)]);
    pair.receive();
    let deadline = pair.egress.deadline().unwrap();
    assert_eq!((deadline.at, deadline.why), (t0 + ms(1_000), Why::SenderReport));
    pair.egress.wake(t0 + ms(999), &mut pair.sent);
    assert_eq!(pair.receive().1.len(), 0);
    pair.egress.wake(t0 + ms(1_000), &mut pair.sent);
    let (_, reports) = pair.receive();
    let parts: Vec<_> = Compound::new(&reports[0]).map(|p| p.unwrap()).collect();
    let [Rtcp::SenderReport(sr), Rtcp::Sdes(sdes)] = parts[..] else { panic!("{parts:?}") };
    assert_eq!(sr.ssrc, VIDEO_SSRC);
    assert_eq!(sdes.chunks().next().unwrap().text(SdesKind::Cname), Some(&b"ann"[..]));
    assert_eq!(pair.egress.deadline(), None, "silence");
}

#[test]
fn goodbye_names_the_streams_that_sent() {
    let (mut pair, first) = watching(GCM);
    let nack = pair.seal(|out| write_nack(out, 1, VIDEO_SSRC, &[first]));
    let t0 = pair.t0;
    pair.egress.receive_rtcp(t0, &nack, &mut pair.sent, &mut Vec::new()).unwrap();
    pair.receive();
    pair.egress.goodbye(t0, &mut pair.sent);
    let (_, rtcp) = pair.receive();
    let parts: Vec<_> = Compound::new(&rtcp[0]).map(|p| p.unwrap()).collect();
    let [Rtcp::ReceiverReport(_), Rtcp::Sdes(_), Rtcp::Bye(bye)] = parts[..] else { panic!("{parts:?}") };
    assert_eq!(bye.ssrcs().collect::<Vec<_>>(), [VIDEO_SSRC, VIDEO_RTX_SSRC]);
}

/// RFC 4588 §4: own SSRC, payload type and numbers; the original number first, then the payload as it was.
#[test]
fn a_nack_is_answered_on_the_retransmission_stream_once_per_round_trip() {
    let (mut pair, first) = watching(GCM);
    let t0 = pair.t0;
    let batch: Vec<_> = (1_001..1_010).map(|i| Packet { marker: i == 1_009, ..packet(t0, i, 9_000) }).collect();
    forward(&mut pair, &batch);
    let (sent, _) = pair.receive();
    let ask = |pair: &mut Pair, at: u64, lost: &[u16]| {
        let nack = pair.seal(|out| write_nack(out, 1, VIDEO_SSRC, lost));
        pair.egress.receive_rtcp(t0 + ms(at), &nack, &mut pair.sent, &mut Vec::new()).unwrap();
        pair.receive().0
    };
    // The last of these numbers was not sent yet.
    let again = ask(&mut pair, 10, &[first + 3, first + 9, first + 10]);
    assert_eq!(again.len(), 2);
    assert_eq!(again[1].seq, again[0].seq + 1);
    for (again, original) in again.iter().zip([&sent[2], &sent[8]]) {
        assert_eq!((again.ssrc, again.pt), (VIDEO_RTX_SSRC, VP8_RTX_PT));
        assert_eq!((again.rtp_time, again.marker), (original.rtp_time, original.marker));
        assert_eq!(again.payload, [&original.seq.to_be_bytes(), &original.payload[..]].concat());
    }
    assert_eq!(ask(&mut pair, 30, &[first + 3]).len(), 0, "no round trip was measured, and 50 ms are not over");
    assert_eq!(ask(&mut pair, 60, &[first + 3]).len(), 1);
    let stats = pair.egress.stats();
    assert_eq!((stats.rtx, stats.rtx_missed), (3, 1));
    // A whole window is asked for: bounded work, and no packet twice.
    let all: Vec<u16> = (0..2_000).map(|i| first.wrapping_add(i)).collect();
    assert!(ask(&mut pair, 1_000, &all).len() <= 10);
}

#[test]
fn without_a_retransmission_stream_nothing_is_sent_again() {
    let mut sections = sections();
    sections[VIDEO].rtx_ssrc = None;
    sections[VIDEO].formats[0].rtx_pt = None;
    let mut pair = Pair::new(GCM, &sections, 7);
    let t0 = pair.t0;
    pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
    forward(&mut pair, &[key_packet(t0, 1, 0)]);
    let first = pair.receive().0[0].seq;
    let nack = pair.seal(|out| write_nack(out, 1, VIDEO_SSRC, &[first]));
    pair.egress.receive_rtcp(t0, &nack, &mut pair.sent, &mut Vec::new()).unwrap();
    assert!(pair.sent.take().is_empty());
}

/// An old packet sent again under the payload type of a new format would be read as that format.
#[test]
fn a_change_of_format_forgets_what_was_sent() {
    let mut sections = sections();
    sections[VIDEO].formats.push(SectionFormat { pt: 102, rtx_pt: Some(103), format: H264 });
    let mut pair = Pair::new(GCM, &sections, 7);
    let t0 = pair.t0;
    pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
    forward(&mut pair, &[key_packet(t0, 1, 0)]);
    let old = pair.receive().0[0].seq;
    // Another source in the same format: what was lost of the old one can still be repaired.
    pair.egress.assign(t0, VIDEO, Some(VP8)).unwrap();
    let ask = |pair: &mut Pair, seq: u16| {
        let nack = pair.seal(|out| write_nack(out, 1, VIDEO_SSRC, &[seq]));
        pair.egress.receive_rtcp(t0, &nack, &mut pair.sent, &mut Vec::new()).unwrap();
        pair.receive().0.iter().map(|p| p.pt).collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut pair, old), [VP8_RTX_PT]);
    pair.egress.assign(t0, VIDEO, Some(H264)).unwrap();
    forward(&mut pair, &[key_packet(t0, 9, 0)]);
    let (new, _) = pair.receive();
    assert_eq!((new[0].seq, new[0].pt), (old + 1, 102));
    assert_eq!(ask(&mut pair, old), []);
    assert_eq!(ask(&mut pair, old + 1), [103]);
}

#[test]
fn feedback_reaches_those_who_act_on_it() {
    let (mut pair, _) = watching(GCM);
    let t0 = pair.t0;
    let mut feedback = Vec::new();
    let mut hear = |pair: &mut Pair, write: &dyn Fn(&mut Vec<u8>)| {
        let datagram = pair.seal(write);
        feedback.clear();
        let result = pair.egress.receive_rtcp(t0 + ms(400), &datagram, &mut pair.sent, &mut feedback);
        (result, feedback.clone())
    };
    let wanted = vec![Feedback::KeyFrameWanted { section: VIDEO }];
    let twice = |out: &mut Vec<u8>| (0..2).for_each(|_| write_pli(out, 9, VIDEO_SSRC));
    assert_eq!(hear(&mut pair, &twice), (Ok(()), wanted.clone()), "once a datagram");
    let fir = |seq| move |out: &mut Vec<u8>| write_fir(out, 9, &[FirEntry { ssrc: VIDEO_SSRC, seq }]);
    assert_eq!(hear(&mut pair, &fir(1)).1, wanted);
    assert_eq!(hear(&mut pair, &fir(1)).1, [], "the same command again");
    assert_eq!(hear(&mut pair, &fir(2)).1, wanted);
    // Audio has no key frames, and nobody knows stream 5.
    let vain = |out: &mut Vec<u8>| [AUDIO_SSRC, 5].into_iter().for_each(|ssrc| write_pli(out, 9, ssrc));
    assert_eq!(hear(&mut pair, &vain), (Ok(()), vec![]));
    let remb = |out: &mut Vec<u8>| write_remb(out, 9, 500_000, &[VIDEO_SSRC]);
    assert_eq!(hear(&mut pair, &remb).1, [Feedback::Remb { bits_per_second: 500_000 }]);
    let report = |out: &mut Vec<u8>| {
        // The wall clock reads 0.4 s more than at `t0`; the report of `t0` was answered after 0.3 s.
        let ntp = ((1_700_000_000u64 + 2_208_988_800) & 0xffff) as u32;
        let block = ReportBlock {
            ssrc: VIDEO_SSRC,
            fraction_lost: 64,
            jitter: 450,
            last_sr: ntp << 16,
            delay_since_last_sr: 65_536 * 3 / 10,
            ..ReportBlock::default()
        };
        write_receiver_report(out, 9, &[ReportBlock { ssrc: 5, ..block }, block]);
    };
    assert_eq!(hear(&mut pair, &report), (Ok(()), vec![]));
    assert_eq!(hear(&mut pair, &|out| write_bye(out, &[8, 9])).1, [Feedback::Bye { section: VIDEO }]);
    let stats = pair.egress.stats();
    assert_eq!((stats.plis, stats.rtcp_received, stats.rtcp_bad), (4, 8, 0));
    assert_eq!((stats.loss, stats.jitter), (0.25, ms(5)));
    assert!(stats.rtt.unwrap().abs_diff(ms(100)) < ms(1), "{:?}", stats.rtt);
}

#[test]
fn forged_replayed_and_broken_rtcp_cost_only_themselves() {
    for profile in PROFILES {
        let (mut pair, _) = watching(profile);
        let t0 = pair.t0;
        let good = pair.seal(|out| write_pli(out, 9, VIDEO_SSRC));
        let mut feedback = Vec::new();
        for bit in 0..good.len() * 8 {
            let mut forged = good.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let refused = pair.egress.receive_rtcp(t0, &forged, &mut pair.sent, &mut feedback);
            assert!(matches!(refused, Err(RtcpRefused::Srtp(_))), "{profile:?}, bit {bit}: {refused:?}");
        }
        for len in 0..good.len() {
            assert!(pair.egress.receive_rtcp(t0, &good[..len], &mut pair.sent, &mut feedback).is_err());
        }
        assert_eq!(feedback, []);
        assert_eq!(pair.egress.receive_rtcp(t0, &good, &mut pair.sent, &mut feedback), Ok(()));
        assert!(pair.egress.receive_rtcp(t0, &good, &mut pair.sent, &mut feedback).is_err(), "replayed");
        assert_eq!(feedback.len(), 1);
        // Authentic, and broken after its first packet, which stands.
        let broken = pair.seal(|out| {
            write_pli(out, 9, VIDEO_SSRC);
            out.extend_from_slice(&[0x80, 201, 0, 9]);
        });
        let refused = pair.egress.receive_rtcp(t0, &broken, &mut pair.sent, &mut feedback);
        assert!(matches!(refused, Err(RtcpRefused::Rtcp(_))), "{refused:?}");
        assert_eq!(feedback.len(), 2);
        let long = pair.egress.receive_rtcp(t0, &[0x80; 4_000], &mut pair.sent, &mut feedback);
        assert_eq!(long, Err(RtcpRefused::TooLong(4_000)));
    }
}

#[test]
fn transport_wide_feedback_is_matched() {
    let (mut pair, _) = watching(GCM);
    let t0 = pair.t0;
    for i in 1..20 {
        let at = t0 + ms(i * 10);
        pair.egress.forward(at, VIDEO, 0, clock(t0, 0), &[packet(at, 1_000 + i, 0)], &mut pair.sent);
    }
    let arrivals: Vec<_> = (0..20u64).map(|i| (i != 7).then_some(5_000_000 + i * 10_000)).collect();
    let mut writer = TwccWriter::new(9, VIDEO_SSRC);
    let datagram = pair.seal(|out| {
        writer.write(out, 0, &arrivals);
    });
    pair.egress.receive_rtcp(t0 + ms(250), &datagram, &mut pair.sent, &mut Vec::new()).unwrap();
    let stats = pair.egress.stats();
    assert_eq!((stats.twcc_acked, stats.twcc_lost), (19, 1));
    let results: Vec<_> = pair.egress.twcc_results().collect();
    assert_eq!(results.len(), 20);
    for (i, result) in (0u64..).zip(results) {
        assert_eq!((result.seq, result.sent), (i as u16, t0 + ms(i * 10)));
        assert_eq!(result.arrived_us, (i != 7).then_some(5_000_000 + i as i64 * 10_000));
        assert_eq!(result.len, 16 + 12 + 100 + 16);
    }
}

/// Case sec-01, in the other direction: 70,000 packets with loss, reordering and a wrap, all opened by the viewer.
#[test]
fn the_outgoing_stream_wraps_unnoticed() {
    for profile in [GCM, SrtpProfile::Aes128CmSha1_80] {
        let (mut pair, first) = watching(profile);
        let t0 = pair.t0;
        let mut numbers = BTreeSet::from([u64::from(first)]);
        for i in (1_001u64..71_001).step_by(2) {
            // Swapped in pairs.
            forward(&mut pair, &[packet(t0, i + 1, 0), packet(t0, i, 0)]);
            for mut datagram in pair.sent.take().into_iter().filter(|d| !is_rtcp(d)) {
                numbers.insert(pair.viewer.open_rtp(&mut datagram).unwrap().index);
            }
        }
        let expected: BTreeSet<u64> = (u64::from(first)..=u64::from(first) + 70_000).collect();
        assert_eq!(numbers, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the viewer sends, sealed with its keys: no panic, and media still flows.
    #[test]
    fn any_authentic_rtcp_is_survived(
        bodies in proptest::collection::vec((200u8..=207, 0u8..32, proptest::collection::vec(any::<u32>(), 0..60)), 1..30),
    ) {
        let (mut pair, first) = watching(GCM);
        let t0 = pair.t0;
        for (pt, fmt, mut words) in bodies {
            // Half of them are about our stream.
            if let Some(media) = words.get_mut(1).filter(|w| **w % 2 == 0) {
                *media = VIDEO_SSRC;
            }
            let datagram = pair.seal(|out| {
                out.extend_from_slice(&[0x80 | fmt, pt]);
                out.extend_from_slice(&((words.len().max(1)) as u16).to_be_bytes());
                out.extend(words.iter().flat_map(|w| w.to_be_bytes()));
                out.resize(out.len().max(8), 0);
            });
            let _ = pair.egress.receive_rtcp(t0, &datagram, &mut pair.sent, &mut Vec::new());
        }
        pair.sent.clear();
        forward(&mut pair, &[packet(t0, 1_001, 0)]);
        prop_assert_eq!(seqs(&mut pair), [first + 1]);
    }
}
