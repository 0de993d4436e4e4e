//! Numbers of pictures in an outgoing stream, and which layers inside a stream are sent: one run of PictureIDs and
//! TL0PICIDXs over sources and layers that come and go, so that no decoder notices (RFC 7741 §4.2, RFC 9628 §4.2).

use crate::codec::Codec;
use crate::codec::descriptor::{Descriptor, PictureId};

/// The highest temporal and spatial layer of a stream that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayersMax {
    /// Temporal: TID.
    pub temporal: u8,
    /// Spatial: SID of VP9.
    pub spatial: u8,
}

impl LayersMax {
    /// Everything: both fields have three bits at most.
    pub const ALL: Self = Self { temporal: 7, spatial: 7 };
}

/// The numbers that a packet is sent with; also what it is sent again with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PictureNumbers {
    /// PictureID, 15 bits.
    pub id: u16,
    /// TL0PICIDX.
    pub tl0: u8,
}

impl PictureNumbers {
    /// Writes the numbers into a payload of `codec`, where it has them.
    pub fn write(self, codec: Codec, payload: &mut [u8]) {
        if let Some(descriptor) = codec.descriptor(payload) {
            self.write_at(&descriptor, payload);
        }
    }

    fn write_at(self, descriptor: &Descriptor, payload: &mut [u8]) {
        if let Some(id) = descriptor.picture_id {
            let octets = (self.id & 0x7fff | 0x8000).to_be_bytes();
            match (id.long, payload.get_mut(id.at..)) {
                (true, Some([first, second, ..])) => [*first, *second] = octets,
                (false, Some([only, ..])) => *only = octets[1] & 0x7f,
                _ => {}
            }
        }
        if let Some(tl0) = descriptor.tl0
            && let Some(octet) = payload.get_mut(tl0.at)
        {
            *octet = self.tl0;
        }
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub numbers: PictureNumbers,
    /// The last packet of the picture that is sent: layers above it are left out.
    pub ends_picture: bool,
}

/// Pictures left out lately whose numbers were closed up; further back none is repaired.
const LEFT_OUT_KEPT: usize = 16;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pictures {
    current: Run,
    /// The run before, for packets of it that come late.
    before: Run,
    /// The newest number sent.
    last: PictureNumbers,
    last_id_mask: u16,
    /// Layers sent now, and those wanted.
    sent: LayersMax,
    wanted: LayersMax,
    /// A spatial layer is wanted that nothing could begin with yet.
    waits: bool,
}

/// Numbers of one run of one source.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// What is added to numbers of the source; none before its first.
    id: Option<u16>,
    tl0: Option<u8>,
    /// The newest picture seen, by the source's number.
    newest: Option<u16>,
    left_out: [u16; LEFT_OUT_KEPT],
    left_out_next: usize,
    left_out_count: usize,
}

impl Default for Pictures {
    fn default() -> Self {
        Self {
            current: Run::default(),
            before: Run::default(),
            last: PictureNumbers::default(),
            last_id_mask: 0,
            sent: LayersMax::ALL,
            wanted: LayersMax::ALL,
            waits: false,
        }
    }
}

impl Pictures {
    /// Which layers are wanted. Fewer from the next picture on, more from where a decoder can begin with them.
    pub fn want(&mut self, wanted: LayersMax) {
        self.wanted = wanted;
    }

    /// Whether a key frame is of use: a spatial layer that is wanted and comes can only begin with one. Asked once.
    pub fn take_waits(&mut self) -> bool {
        std::mem::take(&mut self.waits)
    }

    /// A run begins with a key frame, whose first packet has this descriptor: from there all that is wanted can be decoded.
    pub fn begin(&mut self, first: Option<Descriptor>) {
        self.before = std::mem::take(&mut self.current);
        self.sent = self.wanted;
        if let Some(first) = first {
            self.number(&first);
            self.current.newest = first.picture_id.map(|id| id.value);
        }
    }

    /// Our numbers for those of the current run. Its first one goes on behind the last that was sent.
    fn number(&mut self, descriptor: &Descriptor) -> PictureNumbers {
        let (fresh, last) = (self.last_id_mask == 0, self.last);
        let id = descriptor.picture_id.map(|id| {
            // The first run keeps the numbers that it has.
            let next = if fresh { 0 } else { last.id.wrapping_add(1).wrapping_sub(id.value) };
            self.current.id.get_or_insert(next);
            self.current.id(id.value, id.mask())
        });
        let tl0 = descriptor.tl0.map(|tl0| {
            let next = if fresh { 0 } else { last.tl0.wrapping_add(1).wrapping_sub(tl0.value) };
            tl0.value.wrapping_add(*self.current.tl0.get_or_insert(next))
        });
        PictureNumbers { id: id.unwrap_or(0), tl0: tl0.unwrap_or(0) }
    }

    /// Numbers for a packet of the current run. `None`: it is of a layer that is left out.
    pub fn next(&mut self, descriptor: &Descriptor) -> Option<Sent> {
        if !self.keeps(descriptor) {
            return None;
        }
        let numbers = self.number(descriptor);
        if let Some(mask) = descriptor.picture_id.map(PictureId::mask)
            && (self.last_id_mask != mask || is_newer(numbers.id, self.last.id, mask))
        {
            self.last_id_mask = mask;
            self.last = PictureNumbers { tl0: descriptor.tl0.map_or(self.last.tl0, |_| numbers.tl0), ..numbers };
        }
        Some(Sent { numbers, ends_picture: self.ends(descriptor) })
    }

    /// The same for a packet of the run before, that comes late.
    pub fn late(&self, descriptor: &Descriptor) -> Option<Sent> {
        let (id, run) = (descriptor.picture_id, &self.before);
        if id.is_some_and(|id| run.has_left_out(id.value)) {
            return None;
        }
        let numbers = PictureNumbers {
            id: id.map_or(0, |id| run.id(id.value, id.mask())),
            tl0: descriptor.tl0.map_or(0, |tl0| tl0.value.wrapping_add(run.tl0.unwrap_or(0))),
        };
        Some(Sent { numbers, ends_picture: false })
    }

    /// Whether the packet is of a layer that is sent. Layers change where a picture begins.
    fn keeps(&mut self, descriptor: &Descriptor) -> bool {
        let (temporal, spatial) = (descriptor.temporal.unwrap_or(0), descriptor.spatial.unwrap_or(0));
        let id = descriptor.picture_id;
        let new = id.is_none_or(|id| self.current.newest.is_none_or(|newest| is_newer(id.value, newest, id.mask())));
        if new {
            if let Some(id) = id {
                self.current.advance(id.value, id.mask());
            }
            let (sent, wanted) = (&mut self.sent, self.wanted);
            sent.temporal = sent.temporal.min(wanted.temporal);
            sent.spatial = sent.spatial.min(wanted.spatial);
            // One layer at a time: what this one may refer to is all there.
            if descriptor.sync && temporal == sent.temporal.saturating_add(1) && temporal <= wanted.temporal {
                sent.temporal = temporal;
            }
            if temporal > sent.temporal {
                if let Some(id) = id {
                    self.current.leave_out(id.value);
                }
                return false;
            }
        } else if id.is_some_and(|id| self.current.has_left_out(id.value)) {
            return false;
        }
        // A spatial layer may begin where it refers to no earlier picture.
        let entry = descriptor.begins && !descriptor.predicted;
        if entry && spatial == self.sent.spatial.saturating_add(1) && spatial <= self.wanted.spatial {
            self.sent.spatial = spatial;
        }
        let sent = spatial <= self.sent.spatial;
        self.waits |= !sent && spatial <= self.wanted.spatial;
        sent
    }

    fn ends(&self, descriptor: &Descriptor) -> bool {
        descriptor.ends && descriptor.spatial == Some(self.sent.spatial)
    }
}

impl Run {
    /// Our number for one of the source.
    fn id(&self, value: u16, mask: u16) -> u16 {
        let later = self.left_out().filter(|left_out| is_newer(*left_out, value, mask));
        value.wrapping_add(self.id.unwrap_or(0)).wrapping_add(later.count() as u16) & mask
    }

    /// What was left out lately, newest first.
    fn left_out(&self) -> impl Iterator<Item = u16> + '_ {
        let back = (1..=self.left_out_count).map(|n| (self.left_out_next + LEFT_OUT_KEPT - n) % LEFT_OUT_KEPT);
        back.filter_map(|at| self.left_out.get(at).copied())
    }

    fn has_left_out(&self, value: u16) -> bool {
        self.left_out().any(|left_out| left_out == value)
    }

    /// A picture began: what is a quarter of all numbers behind it would soon look as if it were ahead.
    fn advance(&mut self, value: u16, mask: u16) {
        self.newest = Some(value);
        while self.left_out().last().is_some_and(|oldest| value.wrapping_sub(oldest) & mask > mask / 4) {
            self.left_out_count -= 1;
        }
    }

    /// The number is not used: those behind it close up.
    fn leave_out(&mut self, value: u16) {
        self.id = self.id.map(|id| id.wrapping_sub(1));
        if let Some(place) = self.left_out.get_mut(self.left_out_next) {
            *place = value;
        }
        self.left_out_next = (self.left_out_next + 1) % LEFT_OUT_KEPT;
        self.left_out_count = (self.left_out_count + 1).min(LEFT_OUT_KEPT);
    }
}

/// Whether `a` comes after `b` among numbers that wrap at `mask`.
fn is_newer(a: u16, b: u16, mask: u16) -> bool {
    (1..=mask / 2).contains(&(a.wrapping_sub(b) & mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{vp8, vp9};

    /// A VP8 payload of one packet: PictureID of 15 bits, TL0PICIDX, TID, Y.
    fn vp8(id: u16, tl0: u8, tid: u8, sync: bool) -> Vec<u8> {
        let [high, low] = (id | 0x8000).to_be_bytes();
        vec![0x90, 0xe0, high, low, tl0, tid << 6 | u8::from(sync) << 5, 0x51]
    }

    fn send(pictures: &mut Pictures, mut payload: Vec<u8>) -> Option<(u16, u8)> {
        let sent = pictures.next(&vp8::descriptor(&payload).unwrap())?;
        sent.numbers.write(Codec::Vp8, &mut payload);
        let written = vp8::descriptor(&payload).unwrap();
        assert_eq!((written.len, payload.len()), (6, 7), "in place");
        Some((written.picture_id.unwrap().value, written.tl0.unwrap().value))
    }

    #[test]
    fn runs_go_on_with_the_next_numbers_across_the_wrap() {
        let mut pictures = Pictures::default();
        pictures.begin(None);
        assert_eq!(send(&mut pictures, vp8(0x7ffe, 0xfe, 0, false)), Some((0x7ffe, 0xfe)), "the first keeps its own");
        assert_eq!(send(&mut pictures, vp8(0x7fff, 0xff, 0, false)), Some((0x7fff, 0xff)));
        pictures.begin(None);
        assert_eq!(send(&mut pictures, vp8(500, 7, 0, false)), Some((0, 0)));
        assert_eq!(send(&mut pictures, vp8(500, 7, 0, false)), Some((0, 0)), "the second packet of it");
        assert_eq!(send(&mut pictures, vp8(502, 9, 0, false)), Some((2, 2)), "what the source lost stays a hole");
        assert_eq!(send(&mut pictures, vp8(501, 8, 0, false)), Some((1, 1)), "a repair has its place");
        // A packet of the first run comes late.
        let late = pictures.late(&vp8::descriptor(&vp8(0x7ffd, 0xfd, 0, false)).unwrap()).unwrap();
        assert_eq!(late.numbers, PictureNumbers { id: 0x7ffd, tl0: 0xfd });
        pictures.begin(None);
        assert_eq!(send(&mut pictures, vp8(3, 3, 0, false)), Some((3, 3)));
    }

    /// A packet of the frame before stands first among those that a run begins with: it is no part of it.
    #[test]
    fn a_run_begins_with_its_key_frame() {
        let mut pictures = Pictures::default();
        pictures.begin(vp8::descriptor(&vp8(10, 1, 0, false)));
        assert_eq!(send(&mut pictures, vp8(10, 1, 0, false)), Some((10, 1)));
        pictures.begin(vp8::descriptor(&vp8(700, 60, 0, false)));
        send(&mut pictures, vp8(699, 59, 0, false));
        assert_eq!(send(&mut pictures, vp8(700, 60, 0, false)), Some((11, 2)));
    }

    #[test]
    fn numbers_of_seven_bits_stay_seven_bits() {
        let mut pictures = Pictures::default();
        let mut next = |id: u8| {
            let mut payload = vec![0x90, 0x80, id, 0x51];
            let sent = pictures.next(&vp8::descriptor(&payload).unwrap()).unwrap();
            sent.numbers.write(Codec::Vp8, &mut payload);
            assert_eq!(payload[2] & 0x80, 0);
            payload[2]
        };
        assert_eq!([next(126), next(127), next(0)], [126, 127, 0]);
        pictures.begin(None);
        let mut payload = vec![0x90, 0x80, 90, 0x51];
        pictures.next(&vp8::descriptor(&payload).unwrap()).unwrap().numbers.write(Codec::Vp8, &mut payload);
        assert_eq!(payload, [0x90, 0x80, 1, 0x51]);
    }

    /// L1T3: temporal layers 0 2 1 2, of which those above `max` are left out; ids close up, TL0PICIDX stays.
    #[test]
    fn temporal_layers_are_left_out_and_come_back_at_sync_points() {
        let mut pictures = Pictures::default();
        pictures.begin(None);
        let mut id = 100;
        let mut frame = |pictures: &mut Pictures, tid: u8, sync: bool| {
            id += 1;
            send(pictures, vp8(id, (id / 4) as u8, tid, sync)).map(|(id, _)| id)
        };
        let of = |pictures: &mut Pictures, frame: &mut dyn FnMut(&mut Pictures, u8, bool) -> Option<u16>, sync| {
            [(0, false), (2, sync), (1, sync), (2, false)].map(|(tid, sync)| frame(pictures, tid, sync))
        };
        assert_eq!(of(&mut pictures, &mut frame, true), [Some(101), Some(102), Some(103), Some(104)]);
        pictures.want(LayersMax { temporal: 0, ..LayersMax::ALL });
        assert_eq!(of(&mut pictures, &mut frame, true), [Some(105), None, None, None]);
        assert_eq!(of(&mut pictures, &mut frame, false), [Some(106), None, None, None]);
        pictures.want(LayersMax::ALL);
        assert_eq!(of(&mut pictures, &mut frame, false), [Some(107), None, None, None], "no layer can begin here");
        assert_eq!(of(&mut pictures, &mut frame, true), [Some(108), None, Some(109), None], "one at a time");
        assert_eq!(of(&mut pictures, &mut frame, true), [Some(110), Some(111), Some(112), Some(113)]);
    }

    #[test]
    fn late_packets_of_pictures_sent_and_left_out() {
        let mut pictures = Pictures::default();
        pictures.begin(None);
        pictures.want(LayersMax { temporal: 0, ..LayersMax::ALL });
        assert_eq!(send(&mut pictures, vp8(10, 1, 0, false)), Some((10, 1)));
        assert_eq!(send(&mut pictures, vp8(11, 1, 1, false)), None);
        assert_eq!(send(&mut pictures, vp8(12, 2, 0, false)), Some((11, 2)));
        assert_eq!(send(&mut pictures, vp8(13, 2, 1, false)), None);
        assert_eq!(send(&mut pictures, vp8(14, 3, 0, false)), Some((12, 3)));
        assert_eq!(send(&mut pictures, vp8(12, 2, 0, false)), Some((11, 2)), "before the second that was left out");
        assert_eq!(send(&mut pictures, vp8(10, 1, 0, false)), Some((10, 1)), "before both");
        assert_eq!(send(&mut pictures, vp8(11, 1, 1, false)), None);
    }

    /// What was left out long ago has no say about numbers that come round again.
    #[test]
    fn left_out_pictures_are_forgotten_in_time() {
        let mut pictures = Pictures::default();
        pictures.begin(None);
        pictures.want(LayersMax { temporal: 0, ..LayersMax::ALL });
        assert_eq!(send(&mut pictures, vp8(10, 1, 0, false)), Some((10, 1)));
        assert_eq!(send(&mut pictures, vp8(11, 1, 1, false)), None);
        for n in 12..200_000u32 {
            let sent = send(&mut pictures, vp8((n & 0x7fff) as u16, 2, 0, false)).unwrap();
            assert_eq!(u32::from(sent.0), (n - 1) & 0x7fff, "{n}");
        }
    }

    /// VP9, two spatial layers in one stream: I L B E, TID and SID, TL0PICIDX.
    #[test]
    fn spatial_layers_are_left_out_and_the_last_one_kept_ends_the_picture() {
        let packet = |id: u8, sid: u8, key: bool| {
            let required = 0x80 | if key { 0 } else { 0x40 } | 0x20 | 0x08 | 0x04;
            vec![required, id, sid << 1 | u8::from(sid > 0), 7, 0x82]
        };
        let mut pictures = Pictures::default();
        let send = |pictures: &mut Pictures, id, sid, key| {
            let payload = packet(id, sid, key);
            pictures.next(&vp9::descriptor(&payload).unwrap()).map(|sent| (sent.numbers.id, sent.ends_picture))
        };
        pictures.begin(None);
        assert_eq!(send(&mut pictures, 1, 0, true), Some((1, false)));
        assert_eq!(send(&mut pictures, 1, 1, true), Some((1, false)), "the sender's own marker stands");
        pictures.want(LayersMax { spatial: 0, ..LayersMax::ALL });
        assert_eq!(send(&mut pictures, 2, 0, false), Some((2, true)));
        assert_eq!(send(&mut pictures, 2, 1, false), None);
        pictures.want(LayersMax { spatial: 1, ..LayersMax::ALL });
        assert_eq!(send(&mut pictures, 3, 0, false), Some((3, true)));
        assert!(!pictures.take_waits());
        assert_eq!(send(&mut pictures, 3, 1, false), None, "predicted from a picture that was not sent");
        assert!(pictures.take_waits() && !pictures.take_waits(), "it needs a key frame");
        assert_eq!(send(&mut pictures, 4, 0, true), Some((4, true)));
        assert_eq!(send(&mut pictures, 4, 1, true), Some((4, true)));
        assert_eq!(send(&mut pictures, 5, 0, false), Some((5, false)));
        assert_eq!(send(&mut pictures, 5, 1, false), Some((5, true)));
    }
}
