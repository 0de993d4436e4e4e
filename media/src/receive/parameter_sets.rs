//! The parameter sets of an H.264 stream whose encoder sends them once: kept for viewers who come later.

use crate::codec::h264::{self, Unit};
use crate::packet::Payload;
use std::sync::Arc;

/// Sets of one stream; encoders use one sequence and one or two picture parameter sets.
const SETS_MAX: usize = 8;
/// Bytes of one set: it goes out as one packet.
const SET_BYTES_MAX: usize = 1_000;

/// The newest parameter sets of one stream, by kind and id (H.264 §7.4.1.2.1). Each is a NAL unit, to be sent as a
/// single NAL unit packet, which every packetization mode has (RFC 6184 §5.4).
#[derive(Debug, Default)]
pub struct ParameterSets {
    kept: Vec<Kept>,
    /// What readers share: sequence parameter sets first.
    all: Option<Arc<[Payload]>>,
    /// RTP time of the frame that a sequence parameter set came with last.
    came_with: Option<u32>,
}

#[derive(Debug)]
struct Kept {
    kind: u8,
    id: u32,
    unit: Payload,
}

impl ParameterSets {
    /// Takes note of the sets in a payload of the frame of `rtp_time`.
    pub fn observe(&mut self, rtp_time: u32, payload: &[u8]) {
        let mut changed = false;
        for (kind, unit) in h264::parameter_sets(payload) {
            if kind == Unit::SPS {
                self.came_with = Some(rtp_time);
            }
            changed |= self.keep(kind, unit);
        }
        if changed {
            self.kept.sort_by_key(|kept| (kept.kind, kept.id));
            let has = |kind| self.kept.iter().any(|kept| kept.kind == kind);
            let complete = has(Unit::SPS) && has(Unit::PPS);
            self.all = complete.then(|| self.kept.iter().map(|kept| kept.unit.clone()).collect());
        }
    }

    /// Whether something is new.
    fn keep(&mut self, kind: u8, unit: &[u8]) -> bool {
        let Some(id) = h264::parameter_set_id(unit).filter(|_| unit.len() <= SET_BYTES_MAX) else { return false };
        if let Some(kept) = self.kept.iter_mut().find(|kept| (kept.kind, kept.id) == (kind, id)) {
            let same = *kept.unit == *unit;
            if !same {
                kept.unit = unit.into();
            }
            return !same;
        }
        // More than any encoder uses: the stream is entered only where it brings them along.
        let room = self.kept.len() < SETS_MAX;
        if room {
            self.kept.push(Kept { kind, id, unit: unit.into() });
        }
        room
    }

    /// Every set that a decoder needs; none while one is missing.
    pub fn all(&self) -> Option<&Arc<[Payload]>> {
        self.all.as_ref()
    }

    /// Whether a decoder that knows these sets can begin with this payload of the frame of `rtp_time`: an IDR picture
    /// begins, and brings no sets of its own along.
    pub fn let_begin(&self, rtp_time: u32, payload: &[u8]) -> bool {
        self.all.is_some() && self.came_with != Some(rtp_time) && h264::contents(payload).starts_idr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constrained baseline 3.1, set 0; and its set 1, whose id is the Exp-Golomb code 010.
    const SPS: &[u8] = &[0x67, 0x42, 0xc0, 0x1f, 0xda, 1, 0x40, 0x16, 0xe8, 0x40];
    const SPS_1: &[u8] = &[0x67, 0x42, 0xc0, 0x1f, 0x5a, 1];
    const PPS: &[u8] = &[0x68, 0xce, 0x3c, 0x80];
    const IDR: &[u8] = &[0x65, 0x88, 0x84];

    fn all(sets: &ParameterSets) -> Vec<Vec<u8>> {
        sets.all().map(|all| all.iter().map(|unit| unit.to_vec()).collect()).unwrap_or_default()
    }

    #[test]
    fn sets_are_kept_from_any_packet_until_newer_ones_come() {
        let mut sets = ParameterSets::default();
        sets.observe(0, PPS);
        assert!(sets.all().is_none() && !sets.let_begin(9, IDR), "half of it is nothing");
        sets.observe(0, SPS);
        assert_eq!(all(&sets), [SPS, PPS]);
        let before = sets.all().unwrap().clone();
        sets.observe(9, SPS);
        assert!(Arc::ptr_eq(&before, sets.all().unwrap()), "the same again is no news");
        let newer: Vec<u8> = [SPS, &[1]].concat();
        let stap = [&[0x78, 0, 11][..], &newer, &[0, 4], PPS, &[0, 3], IDR].concat();
        sets.observe(18, &stap);
        assert_eq!(all(&sets), [&newer[..], PPS]);
        sets.observe(27, SPS_1);
        assert_eq!(all(&sets), [&newer[..], SPS_1, PPS], "another id is another set");
    }

    #[test]
    fn a_frame_that_brings_its_own_sets_begins_with_them() {
        let mut sets = ParameterSets::default();
        sets.observe(0, SPS);
        sets.observe(0, PPS);
        assert!(!sets.let_begin(0, IDR), "the packet before it is the beginning");
        assert!(sets.let_begin(3_000, IDR));
        assert!(sets.let_begin(3_000, &[0x7c, 0x85, 0x88]), "the first fragment");
        assert!(!sets.let_begin(3_000, &[0x7c, 0x05, 0x88]), "not the second");
        assert!(!sets.let_begin(3_000, &[0x41, 0x9a]));
    }

    #[test]
    fn memory_is_bounded() {
        let mut sets = ParameterSets::default();
        sets.observe(0, SPS);
        sets.observe(0, &[0x68; 1_200]);
        assert!(sets.all().is_none(), "no packet takes it");
        // Ids 0 to 254 as Exp-Golomb codes: a leading 1, or zeros, 1 and as many bits.
        for id in 0..255u32 {
            let bits = 32 - (id + 1).leading_zeros();
            let code = u64::from(id + 1) << (64 - (2 * bits - 1));
            sets.observe(0, &[&[0x68][..], &code.to_be_bytes()].concat());
        }
        assert_eq!(sets.all().unwrap().len(), SETS_MAX);
    }
}
