//! A transport without ICE, DTLS and SRTP, for simulations of whole rooms: the same offers, sections and events,
//! cheap and repeatable.
//!
//! The peer's first datagram, of any kind, connects it. A publisher's RTP and RTCP are read as they are. A
//! playing peer gets [`SrtpKeys`] of zeros, so that the send side runs unchanged and whoever knows that can open
//! what it sends. RTCP BYE stands for close notify. Lost packets
//! of sections that agreed on retransmission are asked for, as str0m asks on an encrypted transport.

use super::peek::Rtp;
use super::streams::{Admission, Streams};
use super::{
    Accept, ClosedBy, DatagramRefused, IceRestart, Output, ReceivedRtp, RestartRefused, Role, Section, SrtpKeys,
    SrtpProfile, TransportEvent,
};
use crate::codec::Format;
use crate::packet::AudioLevel;
use crate::receive::loss::NackGenerator;
use crate::sdp::{Answer, AnswerParts, Offer, SdpRefusal, Security, check_candidate, negotiate, write_fragment};
use crate::units::Bitrate;
use crate::wire::rtcp::{write_nack, write_receiver_report, write_remb};
use crate::wire::rtp::{Class, classify};
use crate::wire::stun::local_ufrag;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

/// Sender of our own RTCP.
const OUR_SSRC: u32 = 1;
const SENDER_REPORT: u8 = 200;
const BYE: u8 = 203;
const PAYLOAD_FEEDBACK: u8 = 206;

/// See the module.
pub struct Plain {
    role: Role,
    sections: Vec<Section>,
    local_ufrag: String,
    remote_ufrag: String,
    /// Our ufrag before a restart, until the peer names the new one.
    old_ufrag: Option<String>,
    restarts: u32,
    streams: Streams,
    sources: Vec<Source>,
    peer: Option<SocketAddr>,
    closed: bool,
    lost: Vec<u64>,
    out: VecDeque<Output>,
}

/// What is remembered of one SSRC of the peer.
struct Source {
    ssrc: u32,
    last: u64,
    report: Option<(u64, u32)>,
    /// Only where retransmission was agreed on.
    nacks: Option<NackGenerator>,
}

impl Source {
    /// Extends `seq` to the number nearest to the last one (RFC 3711 §3.3.1).
    fn extend(&self, seq: u16) -> u64 {
        let step = i64::from(seq.wrapping_sub(low_16(self.last)).cast_signed());
        // Before the very first number there is none.
        self.last.checked_add_signed(step).unwrap_or(u64::from(seq))
    }
}

fn low_16(number: u64) -> u16 {
    (number & 0xffff) as u16
}

impl Plain {
    /// Answers `accept.offer`; `number` tells the transports of a simulation apart.
    pub(super) fn accept(number: u64, accept: &Accept<'_>) -> Result<(Plain, Answer), SdpRefusal> {
        let offer = Offer::parse(accept.offer)?;
        let agreed = negotiate(&offer, accept.role, Security::None)?;
        let mut streams = Streams::default();
        for (index, accepted) in agreed.media().enumerate() {
            streams.add_section(accepted);
            for declared in accepted.iter().flat_map(|accepted| &accepted.declared) {
                streams.declare(index, *declared);
            }
        }
        // 1,024 SSRCs for each transport: two for each of the sections that one may have.
        let mut ssrc = (low_16(number.wrapping_add(1)) as u32) << 10;
        let sections = agreed.sections(accept.role, || {
            ssrc = ssrc.wrapping_add(1);
            ssrc
        });
        let local_ufrag = format!("plain{number}");
        let parts = AnswerParts {
            role: accept.role,
            sections: &sections,
            candidates: accept.candidates,
            ice: None,
            session_id: number,
            cname: &local_ufrag,
        };
        let answer = Answer::new(&agreed, &parts);
        let plain = Plain {
            role: accept.role,
            sections,
            local_ufrag,
            remote_ufrag: agreed.remote_ufrag,
            old_ufrag: None,
            restarts: 0,
            streams,
            sources: Vec::new(),
            peer: None,
            closed: false,
            lost: Vec::new(),
            out: VecDeque::new(),
        };
        Ok((plain, answer))
    }

    pub(super) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(super) fn local_ufrag(&self) -> &str {
        &self.local_ufrag
    }

    pub(super) fn remote_ufrag(&self) -> &str {
        &self.remote_ufrag
    }

    pub(super) fn poll(&mut self) -> Output {
        self.out.pop_front().unwrap_or_else(|| {
            let nacks = self.sources.iter().filter_map(|s| s.nacks.as_ref()?.deadline());
            Output::Wait(nacks.map(|deadline| deadline.at).min())
        })
    }

    /// Asks for what is missing and due (RFC 4585 §6.2.1).
    pub(super) fn wake(&mut self, now: Instant) {
        for index in 0..self.sources.len() {
            self.lost.clear();
            let source = &mut self.sources[index];
            let Some(nacks) = &mut source.nacks else { continue };
            nacks.due(now, &mut self.lost);
            if self.lost.is_empty() {
                continue;
            }
            let (media, lost): (u32, Vec<u16>) = (source.ssrc, self.lost.iter().map(|n| low_16(*n)).collect());
            let mut datagram = Vec::new();
            write_nack(&mut datagram, OUR_SSRC, media, &lost);
            self.transmit(datagram);
        }
    }

    pub(super) fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Result<(), DatagramRefused> {
        if self.closed {
            return Err(DatagramRefused::Closed);
        }
        match self.peer.replace(from) {
            None => {
                let (key, salt) = (vec![0; 16], vec![0; 12]);
                let keys = SrtpKeys {
                    profile: SrtpProfile::AeadAes128Gcm,
                    send_key: key.clone(),
                    send_salt: salt.clone(),
                    receive_key: key,
                    receive_salt: salt,
                };
                self.event(TransportEvent::IceConnected { peer: from });
                self.event(TransportEvent::DtlsConnected(keys));
            }
            Some(peer) if peer != from => self.event(TransportEvent::PeerMoved { peer: from }),
            Some(_) => {}
        }
        match classify(datagram) {
            Class::Stun => {
                if local_ufrag(datagram) == Ok(&self.local_ufrag)
                    && let Some(old) = self.old_ufrag.take()
                {
                    self.event(TransportEvent::UfragRetired(old));
                }
                Ok(())
            }
            Class::Rtp | Class::Rtcp if self.role == Role::Play => Err(DatagramRefused::NotForTransport),
            Class::Rtp => self.rtp(now, datagram),
            Class::Rtcp => self.rtcp(datagram),
            Class::Dtls | Class::Unknown => Err(DatagramRefused::NotOurs),
        }
    }

    pub(super) fn request_key_frame(&mut self, section: usize, layer: u8) {
        if let Some(ssrc) = self.streams.current(section, layer) {
            // Picture Loss Indication (RFC 4585 §6.3.1).
            let mut datagram = vec![0x81, PAYLOAD_FEEDBACK, 0, 2];
            datagram.extend(OUR_SSRC.to_be_bytes());
            datagram.extend(ssrc.to_be_bytes());
            self.transmit(datagram);
        }
    }

    pub(super) fn cap(&mut self, section: usize, most: Bitrate) {
        if let Some(ssrc) = self.streams.current(section, 0) {
            let mut datagram = Vec::new();
            write_receiver_report(&mut datagram, OUR_SSRC, &[]);
            write_remb(&mut datagram, OUR_SSRC, most.bps(), &[ssrc]);
            self.transmit(datagram);
        }
    }

    pub(super) fn add_remote_candidate(&mut self, candidate: &str) -> Result<(), SdpRefusal> {
        if check_candidate(candidate) {
            Ok(())
        } else {
            Err(SdpRefusal::Malformed { line: 1, reason: "a=candidate cannot be read" })
        }
    }

    pub(super) fn restart_ice(&mut self, remote_ufrag: &str) -> Result<IceRestart, RestartRefused> {
        if self.closed {
            return Err(RestartRefused::Closed);
        }
        self.restarts += 1;
        let base = self.local_ufrag.split('r').next().unwrap_or_default();
        let new = format!("{base}r{}", self.restarts);
        let before = std::mem::replace(&mut self.local_ufrag, new);
        let given_up = match &self.old_ufrag {
            Some(_) => Some(before),
            None => {
                self.old_ufrag = Some(before);
                None
            }
        };
        remote_ufrag.clone_into(&mut self.remote_ufrag);
        let fragment = write_fragment(&self.sections, &self.local_ufrag, "", &[]);
        Ok(IceRestart { local_ufrag: self.local_ufrag.clone(), given_up, fragment })
    }

    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            // RFC 3550 §6.6.
            let mut datagram = vec![0x81, BYE, 0, 1];
            datagram.extend(OUR_SSRC.to_be_bytes());
            self.transmit(datagram);
        }
    }

    fn event(&mut self, event: TransportEvent) {
        self.out.push_back(Output::Event(event));
    }

    fn transmit(&mut self, datagram: Vec<u8>) {
        if let Some(to) = self.peer {
            self.out.push_back(Output::Transmit { to, datagram });
        }
    }

    fn rtp(&mut self, now: Instant, datagram: &[u8]) -> Result<(), DatagramRefused> {
        let rtp = Rtp::parse(datagram).ok_or(DatagramRefused::Unreadable)?;
        if !self.streams.knows(rtp.ssrc) {
            match self.streams.admit(&rtp) {
                Admission::Media { evicted, .. } => self.sources.retain(|s| Some(s.ssrc) != evicted),
                Admission::Repair { .. } => {}
                Admission::Refused => return Err(DatagramRefused::UnknownSsrc),
            }
        }
        let mut payload = match (rtp.padded, rtp.body.split_last()) {
            // RFC 3550 §5.1: the last octet counts the padding, itself included.
            (true, Some((last, _))) => {
                let kept = rtp.body.len().checked_sub(usize::from(*last)).ok_or(DatagramRefused::Unreadable)?;
                rtp.body.get(..kept).unwrap_or_default()
            }
            (true, None) => return Err(DatagramRefused::Unreadable),
            (false, _) => rtp.body,
        };
        let (mut ssrc, mut pt, mut seq) = (rtp.ssrc, rtp.pt, rtp.seq);
        if let Some(media) = self.streams.repaired_by(rtp.ssrc) {
            // RFC 4588 §4: the original number comes first. Padding that probes the link has none.
            let Some((original, rest)) = payload.split_first_chunk::<2>() else { return Ok(()) };
            (ssrc, seq, payload) = (media, u16::from_be_bytes(*original), rest);
            pt = self.repaired_pt(rtp.pt).ok_or(DatagramRefused::UnknownSsrc)?;
        }
        let place = self.streams.authenticated(ssrc, pt).ok_or(DatagramRefused::UnknownSsrc)?;
        let received = self.received(now, &rtp, (ssrc, seq), place, payload);
        self.event(TransportEvent::Rtp(received));
        Ok(())
    }

    fn received(
        &mut self,
        now: Instant,
        rtp: &Rtp<'_>,
        (ssrc, seq): (u32, u16),
        (section, layer, format): (usize, u8, Format),
        payload: &[u8],
    ) -> ReceivedRtp {
        let formats = self.sections.get(section).map(|s| &s.formats);
        let repairs = formats.is_some_and(|f| f.iter().any(|f| f.format == format && f.rtx_pt.is_some()));
        let source = self.source(ssrc, seq);
        let ext_seq = source.extend(seq);
        source.last = source.last.max(ext_seq);
        if repairs {
            source.nacks.get_or_insert_default().observe(now, ext_seq);
        }
        let sender_report = source.report;
        let level_id = self.sections.get(section).and_then(|s| s.extensions.audio_level);
        let level = level_id.and_then(|id| rtp.extension(id)?.first().copied());
        ReceivedRtp {
            ssrc,
            section,
            layer,
            format,
            ext_seq,
            rtp_time: rtp.time,
            marker: rtp.marker,
            level: level.map(|byte| AudioLevel { dbov: byte & 0x7f, voice: byte & 0x80 != 0 }),
            payload: payload.into(),
            sender_report,
        }
    }

    fn source(&mut self, ssrc: u32, seq: u16) -> &mut Source {
        let index = self.sources.iter().position(|s| s.ssrc == ssrc).unwrap_or_else(|| {
            self.sources.push(Source { ssrc, last: u64::from(seq), report: None, nacks: None });
            self.sources.len() - 1
        });
        &mut self.sources[index]
    }

    fn repaired_pt(&self, rtx_pt: u8) -> Option<u8> {
        let formats = self.sections.iter().flat_map(|s| &s.formats);
        formats.filter(|f| f.rtx_pt == Some(rtx_pt)).map(|f| f.pt).next()
    }

    /// Sender reports (RFC 3550 §6.4.1) and BYE of a compound.
    fn rtcp(&mut self, datagram: &[u8]) -> Result<(), DatagramRefused> {
        let mut rest = datagram;
        while let Some((&[_, kind, l0, l1], body)) = rest.split_first_chunk::<4>() {
            let length = usize::from(u16::from_be_bytes([l0, l1])) * 4;
            let (packet, behind) = body.split_at_checked(length).ok_or(DatagramRefused::Unreadable)?;
            match (kind, packet) {
                (SENDER_REPORT, [s0, s1, s2, s3, ntp @ ..]) if packet.len() >= 24 => {
                    let ssrc = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
                    let ntp_time = ntp.first_chunk::<8>().map(|t| u64::from_be_bytes(*t));
                    let rtp_time = ntp.get(8..12).and_then(|t| t.first_chunk::<4>()).map(|t| u32::from_be_bytes(*t));
                    if let Some(source) = self.sources.iter_mut().find(|s| s.ssrc == ssrc) {
                        source.report = ntp_time.zip(rtp_time);
                    }
                }
                (BYE, _) => {
                    self.closed = true;
                    self.event(TransportEvent::Closed(ClosedBy::Peer));
                    return Ok(());
                }
                _ => {}
            }
            rest = behind;
        }
        Ok(())
    }
}
