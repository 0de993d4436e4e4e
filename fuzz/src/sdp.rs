//! Offers and trickle fragments: texts of anybody.

use rondo_media::codec::Kind;
use rondo_media::sdp::{CANDIDATES_MAX, Fragment, Offer, SECTION_LINES_MAX};
use rondo_media::transport::{Accept, Role, Section, Shared, Transport};
use std::net::SocketAddr;

/// An offer: what can be read is answered or refused, and the answer is one that JSEP allows to this offer.
pub fn offer(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(offer) = Offer::parse(text) else { return };
    assert!(offer.candidates() <= CANDIDATES_MAX);
    for role in [Role::Publish, Role::Play] {
        // Without security: no certificate, and so the same answer each time.
        accept(&Shared::plain(), role, text);
    }
}

/// Answers an offer and checks the answer against it.
pub fn accept(shared: &Shared, role: Role, text: &str) -> Option<Transport> {
    let candidates = [SocketAddr::from(([192, 0, 2, 1], 7_882)), "[2001:db8::1]:7882".parse().ok()?];
    let accept = Accept { role, candidates: &candidates, offer: text };
    let (transport, answer) = Transport::accept(super::time::origin(), shared, accept).ok()?;
    let answer = answer.finish(&[(0, "stream", "track")]);
    let m_lines = |text: &str| text.lines().filter(|line| line.starts_with("m=")).count();
    assert_eq!(m_lines(&answer), m_lines(text), "RFC 3264 section 6: as many m-lines as offered");
    let visible = |b: u8| b == b' ' || b.is_ascii_graphic();
    answer.split("\r\n").for_each(|line| assert!(line.bytes().all(visible), "{line:?}"));
    Offer::parse(&answer).unwrap_or_else(|refusal| panic!("our own answer: {refusal}\n{answer}"));
    check_sections(role, transport.sections());
    Some(transport)
}

fn check_sections(role: Role, sections: &[Section]) {
    let mut ssrcs: Vec<u32> = sections.iter().flat_map(|s| [s.ssrc, s.rtx_ssrc]).flatten().collect();
    let all = ssrcs.len();
    ssrcs.sort_unstable();
    ssrcs.dedup();
    assert_eq!(ssrcs.len(), all, "no SSRC twice in one transport");
    for section in sections {
        assert!(section.mid.len() <= 255, "{:?}", section.mid);
        assert!(section.ssrc.is_none() || role == Role::Play);
        assert!(section.rtx_ssrc.is_none() || section.ssrc.is_some());
        for format in &section.formats {
            assert!(format.pt < 128 && format.rtx_pt.is_none_or(|pt| pt < 128 && pt != format.pt));
            assert_eq!(format.format.codec.kind(), section.kind);
        }
        let ids = section.extensions;
        let ids = [ids.mid, ids.abs_send_time, ids.twcc, ids.audio_level];
        assert!(ids.iter().flatten().all(|id| *id != 0), "RFC 8285: no extension has id 0");
        assert!(ids[3].is_none() || section.kind == Kind::Audio || section.formats.is_empty());
    }
}

/// A trickle fragment, and what it says once more.
pub fn fragment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(fragment) = Fragment::parse(text) else { return };
    assert!(fragment.candidates.len() <= CANDIDATES_MAX && fragment.mids.len() <= SECTION_LINES_MAX);
    assert!(fragment.ufrag.as_ref().is_none_or(|ufrag| (4..=256).contains(&ufrag.len())));
    assert!(fragment.pwd.as_ref().is_none_or(|pwd| (22..=256).contains(&pwd.len())));
    let mut again = String::new();
    let named = [("ice-ufrag", &fragment.ufrag), ("ice-pwd", &fragment.pwd)];
    named.iter().for_each(|(name, value)| {
        value.iter().for_each(|value| again.push_str(&format!("a={name}:{value}\r\n")));
    });
    fragment.mids.iter().for_each(|mid| again.push_str(&format!("a=mid:{mid}\r\n")));
    fragment.candidates.iter().for_each(|candidate| again.push_str(&format!("a={candidate}\r\n")));
    if fragment.end_of_candidates {
        again.push_str("a=end-of-candidates\r\n");
    }
    assert_eq!(Fragment::parse(&again).as_ref(), Ok(&fragment), "{again}");
}
