//! The header of outgoing packets: one fixed layout a stream, so that packets with equal payloads are equally long and
//! runs of them fit one GSO send (RFC 3550 §5.1, RFC 8285 §4).
//!
//! ```text
//! | V=2 X=1 | M PT | seq | timestamp | SSRC | 0xBEDE or 0x1000 | words | abs-send-time | twcc | audio level | mid | 0… |
//! ```

use crate::codec::Kind;
use crate::packet::AudioLevel;
use crate::transport::Section;

/// Longest element that the one-byte form holds, and its highest id (RFC 8285 §4.2).
const ONE_BYTE_LEN_MAX: usize = 16;
const ONE_BYTE_ID_MAX: u8 = 14;

/// A header with everything in place that does not change, and where to write what does.
#[derive(Debug, Clone)]
pub(super) struct HeaderLayout {
    template: Box<[u8]>,
    abs_send_time: Option<usize>,
    twcc: Option<usize>,
    level: Option<LevelAt>,
}

/// The element of the audio level: left out of a packet whose level is not known by zeros (RFC 8285 §4.1.1: padding).
#[derive(Debug, Clone, Copy)]
struct LevelAt {
    offset: usize,
    element: [u8; 3],
    len: usize,
}

/// What differs from packet to packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeaderFields {
    pub pt: u8,
    pub marker: bool,
    pub seq: u16,
    pub rtp_time: u32,
    /// 24 bits, 6.18 seconds.
    pub abs_send_time: u32,
    pub twcc: u16,
    pub level: Option<AudioLevel>,
}

impl HeaderLayout {
    /// The layout of a section's packets with `ssrc`: its own, or that of its retransmissions.
    pub fn new(section: &Section, ssrc: u32) -> Self {
        let ids = section.extensions;
        let twcc = ids.twcc.filter(|_| section.twcc);
        let level = ids.audio_level.filter(|_| section.kind == Kind::Audio);
        let mid = ids.mid.filter(|_| !section.mid.is_empty());
        let long = section.mid.len() > ONE_BYTE_LEN_MAX && mid.is_some();
        let one_byte = !long && [ids.abs_send_time, twcc, level, mid].iter().flatten().all(|id| *id <= ONE_BYTE_ID_MAX);

        let mut bytes = vec![0x90, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&ssrc.to_be_bytes());
        bytes.extend_from_slice(if one_byte { &[0xbe, 0xde] } else { &[0x10, 0x00] });
        bytes.extend_from_slice(&[0, 0]);
        let mut element = |id: Option<u8>, value: &[u8]| {
            id.map(|id| {
                match one_byte {
                    true => bytes.push(id << 4 | (value.len() as u8 - 1)),
                    false => bytes.extend_from_slice(&[id, value.len() as u8]),
                }
                bytes.extend_from_slice(value);
                bytes.len() - value.len()
            })
        };
        let abs_send_time = element(ids.abs_send_time, &[0; 3]);
        let twcc = element(twcc, &[0; 2]);
        let level_value = element(level, &[0]);
        let mid = section.mid.as_bytes();
        element(ids.mid.filter(|_| !mid.is_empty()), mid.get(..255).unwrap_or(mid));
        let level = level.zip(level_value).map(|(id, at)| match one_byte {
            true => LevelAt { offset: at - 1, element: [id << 4, 0, 0], len: 2 },
            false => LevelAt { offset: at - 2, element: [id, 1, 0], len: 3 },
        });
        Self::finish(bytes, abs_send_time, twcc, level)
    }

    fn finish(mut bytes: Vec<u8>, abs_send_time: Option<usize>, twcc: Option<usize>, level: Option<LevelAt>) -> Self {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let words = (bytes.len() - 16) / 4;
        match words {
            // Nothing was agreed on: no extension at all.
            0 => {
                bytes.truncate(12);
                bytes[0] = 0x80;
            }
            // At most 3 + 2 + 1 + 255 bytes of values and their headers: the count fits a byte.
            words => bytes[15] = words as u8,
        }
        Self { template: bytes.into(), abs_send_time, twcc, level }
    }

    /// Bytes of the header.
    pub fn len(&self) -> usize {
        self.template.len()
    }

    /// Whether packets carry a transport-wide number.
    pub fn has_twcc(&self) -> bool {
        self.twcc.is_some()
    }

    /// Appends a header.
    pub fn write(&self, out: &mut Vec<u8>, fields: &HeaderFields) {
        let start = out.len();
        out.extend_from_slice(&self.template);
        // The offsets are those of the template, which was just appended.
        let Some(header) = out.get_mut(start..) else { return };
        header[1] = u8::from(fields.marker) << 7 | fields.pt;
        header[2..4].copy_from_slice(&fields.seq.to_be_bytes());
        header[4..8].copy_from_slice(&fields.rtp_time.to_be_bytes());
        if let Some(at) = self.abs_send_time {
            let [_, time @ ..] = fields.abs_send_time.to_be_bytes();
            header[at..at + 3].copy_from_slice(&time);
        }
        if let Some(at) = self.twcc {
            header[at..at + 2].copy_from_slice(&fields.twcc.to_be_bytes());
        }
        if let Some(LevelAt { offset, mut element, len }) = self.level {
            match fields.level {
                // RFC 6464 §3: V and 7 bits of level.
                Some(level) => element[len - 1] = u8::from(level.voice) << 7 | level.dbov.min(127),
                None => element = [0; 3],
            }
            header[offset..offset + len].copy_from_slice(&element[..len]);
        }
    }
}

/// The low 6 bits of the seconds and 18 bits of fraction of an NTP time
/// (`http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time`).
pub(super) fn abs_send_time(ntp: u64) -> u32 {
    (ntp >> 14) as u32 & 0xff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ExtensionIds;

    fn section(kind: Kind, mid: &str, extensions: ExtensionIds, twcc: bool) -> Section {
        let formats = Vec::new();
        Section {
            mid: mid.into(),
            kind,
            formats,
            extensions,
            ssrc: Some(1),
            rtx_ssrc: None,
            twcc,
            nack: true,
            layers: Vec::new(),
        }
    }

    const FIELDS: HeaderFields = HeaderFields {
        pt: 96,
        marker: true,
        seq: 0x0102,
        rtp_time: 0x03040506,
        abs_send_time: 0xabcdef,
        twcc: 0x0708,
        level: Some(AudioLevel { dbov: 30, voice: true }),
    };

    fn written(section: &Section, fields: &HeaderFields) -> Vec<u8> {
        let layout = HeaderLayout::new(section, 0x0a0b0c0d);
        let mut out = b"before".to_vec();
        layout.write(&mut out, fields);
        assert_eq!(out.len(), 6 + layout.len());
        out.split_off(6)
    }

    const ALL: ExtensionIds =
        ExtensionIds { mid: Some(4), abs_send_time: Some(2), twcc: Some(3), audio_level: Some(1) };

    #[test]
    fn one_byte_elements_stand_in_fixed_order() {
        let fixed = [0x90, 0xe0, 1, 2, 3, 4, 5, 6, 0x0a, 0x0b, 0x0c, 0x0d];
        let audio = written(&section(Kind::Audio, "a1", ALL, true), &FIELDS);
        let elements = [0xbe, 0xde, 0, 3, 0x22, 0xab, 0xcd, 0xef, 0x31, 7, 8, 0x10, 0x9e, 0x41, b'a', b'1'];
        assert_eq!(audio, [&fixed[..], &elements].concat());
        // Video has no audio level, whatever was agreed on.
        let video = written(&section(Kind::Video, "1", ALL, true), &FIELDS);
        let elements = [0xbe, 0xde, 0, 3, 0x22, 0xab, 0xcd, 0xef, 0x31, 7, 8, 0x40, b'1', 0, 0, 0];
        assert_eq!(video, [&fixed[..], &elements].concat());
    }

    #[test]
    fn a_packet_without_a_level_is_as_long() {
        let section = section(Kind::Audio, "a1", ALL, true);
        let with = written(&section, &FIELDS);
        let without = written(&section, &HeaderFields { level: None, ..FIELDS });
        assert_eq!(with.len(), without.len());
        assert_eq!(&without[23..25], [0, 0], "padding bytes, no element");
        assert_eq!(without[25..], with[25..]);
    }

    #[test]
    fn two_bytes_only_where_needed() {
        let wide = ExtensionIds { mid: Some(15), ..ALL };
        let audio = written(&section(Kind::Audio, "0", wide, true), &FIELDS);
        let elements = [0x10, 0, 0, 4, 2, 3, 0xab, 0xcd, 0xef, 3, 2, 7, 8, 1, 1, 0x9e, 15, 1, b'0', 0];
        assert_eq!(audio[12..], elements);
        let long = "m".repeat(255);
        let audio = written(&section(Kind::Audio, &long, ALL, true), &FIELDS);
        assert_eq!(audio[12..14], [0x10, 0]);
        assert_eq!(audio.len(), 16 + 4 * usize::from(audio[15]));
        assert_eq!(audio[28..30], [4, 255]);
        // 16 characters are the most that the one-byte form holds.
        let audio = written(&section(Kind::Audio, &long[..16], ALL, true), &FIELDS);
        assert_eq!(audio[12..14], [0xbe, 0xde]);
    }

    #[test]
    fn nothing_agreed_on_is_a_plain_header_and_twcc_needs_feedback() {
        let bare = written(&section(Kind::Video, "0", ExtensionIds::default(), true), &FIELDS);
        assert_eq!(bare, [0x80, 0xe0, 1, 2, 3, 4, 5, 6, 0x0a, 0x0b, 0x0c, 0x0d]);
        let only_twcc = ExtensionIds { twcc: Some(3), ..ExtensionIds::default() };
        let layout = HeaderLayout::new(&section(Kind::Video, "0", only_twcc, false), 1);
        assert!(!layout.has_twcc());
        assert_eq!(layout.len(), 12);
    }

    /// 1.5 s is 1.5 · 2^18; whole seconds wrap at 64.
    #[test]
    fn abs_send_time_is_6_18() {
        assert_eq!(abs_send_time(0x1_8000_0000), 3 << 17);
        assert_eq!(abs_send_time(64 << 32), 0);
        assert_eq!(abs_send_time(63 << 32 | 0xffff_ffff), 0xff_ffff);
    }
}
