//! Cases rtcp-01 and rtcp-03: what receivers of the field really send, with the right reading beside it.

mod support;

use rondo_media::wire::rtcp::{Compound, Packet, SdesKind};
use support::{Json, unhex};

const RTCP_01: &str = include_str!("cases/rtcp-01/packets.jsonl");
const RTCP_03: &str = include_str!("cases/rtcp-03/packets.jsonl");

/// RFC 3550 §6.5: END is one octet, and the item list may end on the packet's last one.
#[test]
fn every_legal_sdes_is_read_whole() {
    let mut cases = 0;
    for line in RTCP_01.lines().filter(|l| !l.is_empty()) {
        let case = Json::parse(line);
        let name = case.text("name").unwrap();
        let bytes = unhex(case.text("hex").unwrap());
        let packets: Vec<_> = Compound::new(&bytes).map(|p| p.unwrap_or_else(|e| panic!("{name}: {e}"))).collect();
        let chunks: Vec<_> = packets
            .iter()
            .filter_map(|p| if let Packet::Sdes(sdes) = p { Some(sdes.chunks()) } else { None })
            .flatten()
            .collect();
        let cname = |i: usize| chunks.get(i).and_then(|c| c.text(SdesKind::Cname)).map(|t| str::from_utf8(t).unwrap());
        assert_eq!(cname(0), case.text("cname"), "{name}");
        if let Some(second) = case.text("second") {
            assert_eq!(cname(1), Some(second), "{name}");
        }
        if let Some(mid) = case.text("mid") {
            assert_eq!(chunks[0].text(SdesKind::Mid), Some(mid.as_bytes()), "{name}");
        }
        if name == "sr-sdes-bye" {
            let [Packet::SenderReport(sr), Packet::Sdes(_), Packet::Bye(bye)] = packets[..] else { panic!("{name}") };
            // Read off the case's hex digits.
            assert_eq!((sr.ssrc, sr.info.ntp), (0xa530_da33, 0xe800_0001_8000_0000));
            assert_eq!((sr.info.rtp_time, sr.info.packets, sr.info.octets), (123_456, 500, 40_000));
            assert_eq!(bye.ssrcs().collect::<Vec<_>>(), [0xa530_da33]);
        } else {
            assert!(matches!(packets[..], [Packet::ReceiverReport(_), Packet::Sdes(_)]), "{name}");
        }
        cases += 1;
    }
    assert_eq!(cases, 10);
}

/// draft-alvestrand-rmcat-remb-03 §2.2: mantissa × 2^exponent, which may exceed 64 bits.
#[test]
fn remb_saturates_and_never_wraps() {
    let mut cases = 0;
    for line in RTCP_03.lines().filter(|l| !l.is_empty()) {
        let case = Json::parse(line);
        let name = case.text("name").unwrap();
        let bytes = unhex(case.text("hex").unwrap());
        let rembs: Vec<_> = Compound::new(&bytes)
            .filter_map(|p| if let Packet::Remb(remb) = p.unwrap() { Some(remb) } else { None })
            .collect();
        let [remb] = rembs[..] else { panic!("{name}") };
        // Values that do not fit 64 bits are written as a text in the case.
        let expected = case.number("bps").unwrap_or(u64::MAX);
        assert_eq!(remb.bits_per_second, expected, "{name}");
        let ssrcs: Vec<u32> = remb.ssrcs().collect();
        let expected: &[u32] = if name == "five-ssrcs" { &[0x2233_4455, 1, 2, 3, 4] } else { &[0x2233_4455] };
        assert_eq!(ssrcs, expected, "{name}");
        cases += 1;
    }
    assert_eq!(cases, 8);
}
