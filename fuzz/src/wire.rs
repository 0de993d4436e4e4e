//! RTP, RTCP and STUN as they come off the wire.

use rondo_media::wire::rtcp::{
    Compound, Packet, ReportBlock, SdesKind, TwccStatus, TwccWriter, write_bye, write_cname, write_fir, write_nack,
    write_pli, write_receiver_report, write_remb, write_sender_report,
};
use rondo_media::wire::rtp::{Class, RtpView, audio_level, classify};
use rondo_media::wire::stun::{BindingRequest, key, local_ufrag, write_role_conflict, write_success};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use str0m::ice::{StunMessage, TransId};

/// An RTP packet is read within its bytes, and what was read and written again reads the same.
pub fn rtp(data: &[u8]) {
    let Ok(view) = RtpView::parse(data) else { return };
    assert!(matches!(classify(data), Class::Rtp | Class::Rtcp), "version 2 is RTP or RTCP");
    let extensions: Vec<(u8, &[u8])> = view.extensions().collect();
    let used: usize = view.csrcs().count() * 4 + extensions.iter().map(|(_, value)| value.len()).sum::<usize>();
    assert!(12 + used + view.payload.len() + usize::from(view.padding_len) <= data.len());
    for (id, value) in &extensions {
        assert_ne!(*id, 0);
        assert_eq!(view.extension(*id), extensions.iter().find(|(other, _)| other == id).map(|(_, first)| *first));
        assert!(audio_level(value).is_none_or(|level| level.dbov < 128));
    }
    let mut again = Vec::new();
    // Anything that was read can be written, but for more than a header can hold in the two-byte form.
    if view.header.emit(&extensions, view.payload, view.padding_len, &mut again).is_err() {
        return;
    }
    let reread = RtpView::parse(&again).expect("what was written is read");
    assert_eq!((reread.header, reread.payload), (view.header, view.payload));
    assert_eq!(reread.padding_len, view.padding_len);
    assert_eq!(reread.extensions().collect::<Vec<_>>(), extensions);
}

/// A compound of RTCP: bounded, and each packet that was read and written again says the same.
pub fn rtcp(data: &[u8]) {
    let mut packets = 0;
    for packet in Compound::new(data) {
        packets += 1;
        let Ok(packet) = packet else { continue };
        let mut again = Vec::new();
        let first = said(&packet);
        write(&packet, &mut again);
        if again.is_empty() {
            continue;
        }
        // One packet may become several: a NACK of more losses than one message names.
        let mut reread = Compound::new(&again).map(|packet| said(&packet.expect("what was written is read")));
        let second = reread.next().expect("what was written is there");
        assert_eq!(second, first);
    }
    assert!(packets <= data.len() / 4 + 1, "a packet has at least 4 bytes");
}

/// What a packet says, order aside where the order says nothing.
#[derive(Debug, PartialEq)]
enum Said {
    Report(Option<(u64, u32, u32, u32)>, u32, Vec<ReportBlock>),
    Names(u32, Option<Vec<u8>>),
    Bye(Vec<u32>),
    Nack(u32, u32, BTreeSet<u16>),
    Pli(u32, u32),
    Fir(u32, Vec<(u32, u8)>),
    Twcc(u32, u32, Vec<(u16, bool)>),
    Remb(u32, u64, Vec<u32>),
    Nothing,
}

fn said(packet: &Packet<'_>) -> Said {
    match packet {
        Packet::SenderReport(sr) => {
            let info = (sr.info.ntp, sr.info.rtp_time, sr.info.packets, sr.info.octets);
            Said::Report(Some(info), sr.ssrc, sr.blocks.iter().collect())
        }
        Packet::ReceiverReport(rr) => Said::Report(None, rr.ssrc, rr.blocks.iter().collect()),
        Packet::Sdes(sdes) => {
            sdes.chunks().for_each(|chunk| chunk.items().for_each(|item| assert!(item.text.len() <= 255)));
            match sdes.chunks().next() {
                Some(chunk) => Said::Names(chunk.ssrc, chunk.text(SdesKind::Cname).map(<[u8]>::to_vec)),
                None => Said::Nothing,
            }
        }
        Packet::Bye(bye) => Said::Bye(bye.ssrcs().collect()),
        Packet::Nack(nack) => Said::Nack(nack.sender, nack.media, nack.lost().collect()),
        Packet::Pli(pli) => Said::Pli(pli.sender, pli.media),
        Packet::Fir(fir) => Said::Fir(fir.sender, fir.entries().map(|entry| (entry.ssrc, entry.seq)).collect()),
        Packet::Twcc(twcc) => {
            let statuses: Vec<TwccStatus> = twcc.statuses().collect();
            assert_eq!(statuses.len(), usize::from(twcc.count), "every status has its delta");
            Said::Twcc(twcc.sender, twcc.media, statuses.iter().map(|s| (s.seq, s.ticks.is_some())).collect())
        }
        Packet::Remb(remb) => {
            // A writer keeps the 18 bits that one has room for.
            let low = (u64::BITS - remb.bits_per_second.leading_zeros()).saturating_sub(18);
            Said::Remb(remb.sender, remb.bits_per_second >> low << low, remb.ssrcs().collect())
        }
        Packet::App | Packet::Other { .. } => Said::Nothing,
    }
}

/// Writes what can be written; nothing where no writer exists or one message cannot say it.
fn write(packet: &Packet<'_>, out: &mut Vec<u8>) {
    match packet {
        Packet::SenderReport(sr) => {
            write_sender_report(out, sr.ssrc, &sr.info, &sr.blocks.iter().collect::<Vec<_>>());
        }
        Packet::ReceiverReport(rr) => write_receiver_report(out, rr.ssrc, &rr.blocks.iter().collect::<Vec<_>>()),
        Packet::Sdes(sdes) => {
            let first = sdes.chunks().next();
            if let Some((ssrc, Some(text))) = first.map(|c| (c.ssrc, c.text(SdesKind::Cname)))
                && let Ok(name) = std::str::from_utf8(text)
            {
                write_cname(out, ssrc, name);
            }
        }
        Packet::Bye(bye) => write_bye(out, &bye.ssrcs().collect::<Vec<_>>()),
        Packet::Nack(nack) => {
            let lost: Vec<u16> = nack.lost().collect::<BTreeSet<_>>().into_iter().collect();
            // A writer may need more entries than one message holds.
            if lost.len() <= 200 {
                write_nack(out, nack.sender, nack.media, &lost);
            }
        }
        Packet::Pli(pli) => write_pli(out, pli.sender, pli.media),
        Packet::Fir(fir) => write_fir(out, fir.sender, &fir.entries().collect::<Vec<_>>()),
        Packet::Twcc(twcc) => {
            // On our own clock: what arrived at all, 1 ms apart.
            let arrived = twcc.statuses().enumerate().map(|(n, s)| s.ticks.map(|_| 1_000_000 + n as u64 * 1_000));
            let arrivals: Vec<Option<u64>> = arrived.take(2_000).collect();
            if arrivals.len() == usize::from(twcc.count) && !arrivals.is_empty() {
                let written = TwccWriter::new(twcc.sender, twcc.media).write(out, twcc.base_seq, &arrivals);
                if written < arrivals.len() {
                    out.clear();
                }
            }
        }
        Packet::Remb(remb) => write_remb(out, remb.sender, remb.bits_per_second, &remb.ssrcs().collect::<Vec<_>>()),
        Packet::App | Packet::Other { .. } => {}
    }
}

/// A STUN message: whose it is can be told only from a USERNAME that is a pair of ufrags.
pub fn stun(data: &[u8]) {
    let Ok(ufrag) = local_ufrag(data) else { return };
    assert_eq!(classify(data), Class::Stun);
    assert!((4..=256).contains(&ufrag.len()));
    assert!(data.len().is_multiple_of(4) && data.len() >= 24 + ufrag.len());
    assert!(ufrag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/'), "RFC 8839 section 5.4");
    // The same with another byte at the end is another length, and no message.
    assert!(local_ufrag(&[data, &[0]].concat()).is_err());
    let request = BindingRequest::parse(data).expect("whose ufrag was read");
    // No script knows this password: what is authentic with it is a seal of ours.
    assert!(!request.is_authentic(&key("the password of nobody in any script")));
    sealed(&request);
    answers(&request);
}

const PASSWORD: &str = "VOkJxbRl1RmTxUk/WvJxBt";

fn sha1_hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    str0m::crypto::from_feature_flags().sha1_hmac_provider.sha1_hmac(key, parts)
}

/// The same request as another writer (str0m) seals it is read and authentic, and not when a bit of it is turned.
fn sealed(request: &BindingRequest<'_>) {
    let username = format!("{}:{}", request.ours, request.theirs);
    let message = StunMessage::binding_request(
        &username,
        TransId::new(),
        !request.controlled,
        u64::from(request.priority),
        request.priority,
        request.use_candidate,
    );
    let mut buffer = vec![0; 1_200];
    let length = message.to_bytes(Some(PASSWORD.as_bytes()), &mut buffer, sha1_hmac).expect("a check that fits");
    buffer.truncate(length);
    let again = BindingRequest::parse(&buffer).expect("what another writer wrote is read");
    let said =
        |r: &BindingRequest<'_>| (r.ours.to_owned(), r.theirs.to_owned(), r.priority, r.use_candidate, r.controlled);
    assert_eq!(said(&again), said(request));
    assert!(again.is_authentic(&key(PASSWORD)) && !again.is_authentic(&key("another one")));
    // FINGERPRINT's own header says what the attribute is: without it there is one less to fit.
    let at = request.transaction.iter().fold(0, |sum, b| sum * 31 + usize::from(*b)) % (length - 8);
    buffer[at] ^= 1 << (request.transaction[0] % 8);
    let turned = BindingRequest::parse(&buffer).is_ok_and(|again| again.is_authentic(&key(PASSWORD)));
    assert!(!turned, "a bit of byte {at} was turned");
}

/// Another reader (str0m) finds our answers sealed, to this transaction, and saying what they are to say.
fn answers(request: &BindingRequest<'_>) {
    let port = u16::from_be_bytes([request.transaction[0], request.transaction[1]]);
    let ip = request.priority.to_be_bytes();
    let from = match request.controlled {
        false => SocketAddr::from((ip, port)),
        true => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, u16::from(ip[0]), u16::from(ip[3])], port)),
    };
    for conflict in [false, true] {
        let mut out = Vec::new();
        match conflict {
            false => write_success(&mut out, &request.transaction, from, &key(PASSWORD)),
            true => write_role_conflict(&mut out, &request.transaction, &key(PASSWORD)),
        }
        assert_eq!(out[8..20], request.transaction);
        let read = StunMessage::parse(&out).expect("our answer is read");
        assert!(read.verify(PASSWORD.as_bytes(), sha1_hmac) && !read.verify(b"another one", sha1_hmac));
        match conflict {
            false => assert_eq!((read.is_successful_binding_response(), read.mapped_address()), (true, Some(from))),
            true => assert_eq!(read.error_code().map(|(code, _)| code), Some(487)),
        }
    }
}
