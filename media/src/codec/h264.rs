//! H.264 over RTP (RFC 6184): where a decoder can begin, and profiles compared by what they mean.

/// What one RTP payload begins with, as far as a forwarder cares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// A slice of an IDR picture begins here.
    pub starts_idr: bool,
    /// A sequence parameter set begins here.
    pub has_sps: bool,
}

/// Types of NAL units (H.264 table 7-1).
#[derive(Debug, Clone, Copy)]
pub struct Unit;

impl Unit {
    /// Sequence parameter set.
    pub const SPS: u8 = 7;
    /// Picture parameter set.
    pub const PPS: u8 = 8;
}

const NAL_IDR: u8 = 5;
const NAL_SPS: u8 = Unit::SPS;
const STAP_A: u8 = 24;
const FU_A: u8 = 28;

/// Looks into a single NAL unit packet, a STAP-A or the first fragment of an FU-A (RFC 6184 §5.6, §5.7.1, §5.8).
///
/// STAP-B, MTAP and FU-B exist only in the interleaved mode, which is never negotiated here: they hold nothing.
/// An aggregate whose lengths do not add up holds nothing either.
pub fn contents(payload: &[u8]) -> Contents {
    let Some((&indicator, rest)) = payload.split_first() else { return Contents::default() };
    match indicator & 0x1f {
        STAP_A => aggregate(rest).unwrap_or_default(),
        FU_A => match rest {
            // S|E|R|type; S and E together are forbidden (§5.8).
            [header, _, ..] if header & 0xc0 == 0x80 => unit(header & 0x1f),
            _ => Contents::default(),
        },
        kind => unit(kind),
    }
}

fn unit(kind: u8) -> Contents {
    Contents { starts_idr: kind == NAL_IDR, has_sps: kind == NAL_SPS }
}

/// The units of a STAP-A: 16 bits of length, then the unit. `None` where a length points beyond the end.
fn aggregate(mut units: &[u8]) -> Option<Contents> {
    let mut found = Contents::default();
    while !units.is_empty() {
        let (&length, rest) = units.split_first_chunk::<2>()?;
        let (nal, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(length)))?;
        if let Some(header) = nal.first() {
            let unit = unit(header & 0x1f);
            found.starts_idr |= unit.starts_idr;
            found.has_sps |= unit.has_sps;
        }
        units = rest;
    }
    Some(found)
}

/// The parameter sets in a single NAL unit packet or a STAP-A: type, and the NAL unit with its header. Ends where a
/// length points beyond the end.
pub fn parameter_sets(payload: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let kind = payload.first().map_or(0, |indicator| indicator & 0x1f);
    let mut units = payload.get(1..).filter(|_| kind == STAP_A).unwrap_or_default();
    let aggregated = std::iter::from_fn(move || {
        let (&length, rest) = units.split_first_chunk::<2>()?;
        let (unit, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(length)))?;
        units = rest;
        Some(unit)
    });
    let single = (kind != STAP_A).then_some(payload);
    let typed = |unit: &'_ [u8]| unit.first().map(|header| header & 0x1f);
    let units = single.into_iter().chain(aggregated);
    units.filter_map(move |unit| Some((typed(unit)?, unit))).filter(|(kind, _)| matches!(*kind, Unit::SPS | Unit::PPS))
}

/// The id of a parameter set (H.264 §7.3.2.1.1, §7.3.2.2): an Exp-Golomb code behind the profile and level of a
/// sequence parameter set, the first thing of a picture parameter set. `None` if it is cut off or beyond what exists.
pub fn parameter_set_id(unit: &[u8]) -> Option<u32> {
    let (header, rest) = unit.split_first()?;
    let behind = if header & 0x1f == Unit::SPS { rest.get(3..)? } else { rest };
    // Ids are at most 255: a code of 17 bits (§9.1).
    let bits = behind.iter().take(3).fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
    let available = 8 * u32::try_from(behind.len().min(3)).ok()?;
    let bits = bits << (24 - available) << 8;
    let zeros = bits.leading_zeros();
    let length = 2 * zeros + 1;
    (zeros <= 8 && length <= available).then(|| (bits >> (32 - length)) - 1)
}

/// Whether a decoder that knows nothing can begin with this payload: a sequence parameter set begins here.
///
/// An IDR slice alone is no beginning: its parameter sets went by before, and a viewer that starts at it shows a
/// broken picture (RFC 6184 §8.4; encoders send SPS, PPS and IDR in this order, in one STAP-A or in several packets).
pub fn starts_key_frame(payload: &[u8]) -> bool {
    contents(payload).has_sps
}

/// Profiles of H.264 as RFC 6184 §8.1 table 5 names them, and two of H.264 §A.2.4 that browsers use.
///
/// Two `profile-level-id`s of the same profile can be decoded by the same decoders, whatever their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Profile {
    /// `42` with constraint 1, `4D` with constraint 0, `58` with both.
    ConstrainedBaseline = 1,
    /// `42` or `58` with constraint 0.
    Baseline = 2,
    /// `4D`.
    Main = 3,
    /// `58`.
    Extended = 4,
    /// `64`.
    High = 5,
    /// `64` with constraints 4 and 5.
    ConstrainedHigh = 6,
    /// `64` with constraint 4.
    ProgressiveHigh = 7,
    /// `6E`.
    High10 = 8,
    /// `7A`.
    High422 = 9,
    /// `F4`.
    High444Predictive = 10,
    /// `6E` with constraint 3.
    High10Intra = 11,
    /// `7A` with constraint 3.
    High422Intra = 12,
    /// `F4` with constraint 3.
    High444Intra = 13,
    /// `2C` with constraint 3.
    Cavlc444Intra = 14,
}

impl Profile {
    /// Reads `profile_idc(8) | constraint flags(8) | level_idc(8)`; the level is left out on purpose (§8.2.2).
    /// `None` for combinations that no table names.
    pub fn of(profile_level_id: u32) -> Option<Profile> {
        let [0, idc, iop, _level] = profile_level_id.to_be_bytes() else { return None };
        // Constraint flag 0 is the highest bit; in the baseline family, flag 3 tells levels 1b and 1.1 apart.
        let flags = |mask: u8, value: u8| iop & mask == value;
        match idc {
            0x42 if flags(0x4f, 0x40) => Some(Profile::ConstrainedBaseline),
            0x42 if flags(0x4f, 0x00) => Some(Profile::Baseline),
            0x4d if flags(0x8f, 0x80) => Some(Profile::ConstrainedBaseline),
            0x4d if flags(0xaf, 0x00) => Some(Profile::Main),
            0x58 if flags(0xcf, 0xc0) => Some(Profile::ConstrainedBaseline),
            0x58 if flags(0xcf, 0x80) => Some(Profile::Baseline),
            0x58 if flags(0xcf, 0x00) => Some(Profile::Extended),
            0x64 if iop == 0x00 => Some(Profile::High),
            0x64 if iop == 0x0c => Some(Profile::ConstrainedHigh),
            0x64 if iop == 0x08 => Some(Profile::ProgressiveHigh),
            0x6e if iop == 0x00 => Some(Profile::High10),
            0x6e if iop == 0x10 => Some(Profile::High10Intra),
            0x7a if iop == 0x00 => Some(Profile::High422),
            0x7a if iop == 0x10 => Some(Profile::High422Intra),
            0xf4 if iop == 0x00 => Some(Profile::High444Predictive),
            0xf4 if iop == 0x10 => Some(Profile::High444Intra),
            0x2c if iop == 0x10 => Some(Profile::Cavlc444Intra),
            _ => None,
        }
    }

    /// The number that [`crate::codec::Format::profile`] holds; 0 means no profile.
    pub fn class(self) -> u8 {
        self as u8
    }
}

/// [`Profile::class`] of a `profile-level-id`, its three bytes in the low 24 bits.
///
/// `None` for combinations that no table names; an `a=fmtp` without the parameter means `0x42000a`
/// (Baseline, level 1: RFC 6184 §8.1).
pub fn profile_class(profile_level_id: u32) -> Option<u8> {
    Profile::of(profile_level_id).map(Profile::class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn profiles_are_compared_by_meaning() {
        // RFC 6184 §8.1 table 5, `x` tried with both values; case sdp-01's ids among them.
        let table: [(u8, &str, Profile); 15] = [
            (0x42, "x1xx0000", Profile::ConstrainedBaseline),
            (0x4d, "1xxx0000", Profile::ConstrainedBaseline),
            (0x58, "11xx0000", Profile::ConstrainedBaseline),
            (0x42, "x0xx0000", Profile::Baseline),
            (0x58, "10xx0000", Profile::Baseline),
            (0x4d, "0x0x0000", Profile::Main),
            (0x58, "00xx0000", Profile::Extended),
            (0x64, "00000000", Profile::High),
            (0x6e, "00000000", Profile::High10),
            (0x7a, "00000000", Profile::High422),
            (0xf4, "00000000", Profile::High444Predictive),
            (0x6e, "00010000", Profile::High10Intra),
            (0x7a, "00010000", Profile::High422Intra),
            (0xf4, "00010000", Profile::High444Intra),
            (0x2c, "00010000", Profile::Cavlc444Intra),
        ];
        let browsers = [(0x64, "00001100", Profile::ConstrainedHigh), (0x64, "00001000", Profile::ProgressiveHigh)];
        for idc in 0..=255u8 {
            for iop in 0..=255u8 {
                let fits = |pattern: &str| {
                    pattern.bytes().enumerate().all(|(i, c)| c == b'x' || (iop >> (7 - i) & 1 == 1) == (c == b'1'))
                };
                let mut rows = table.iter().chain(&browsers).filter(|(i, p, _)| *i == idc && fits(p));
                let want = rows.next().map(|(_, _, profile)| *profile);
                for level in [0x0b, 0x1f, 0x34] {
                    let id = u32::from_be_bytes([0, idc, iop, level]);
                    assert_eq!(Profile::of(id), want, "{id:06x}");
                    assert_eq!(profile_class(id), want.map(|p| p as u8), "{id:06x}");
                }
            }
        }
        assert_eq!(Profile::of(0x42e034), Some(Profile::ConstrainedBaseline));
        assert_eq!(Profile::of(0x640c34), Some(Profile::ConstrainedHigh));
        assert_eq!(Profile::of(0x0142_e01f), None, "more than three bytes");
    }

    #[test]
    fn what_cannot_be_read_holds_nothing() {
        for payload in [
            &[][..],
            &[0x78],
            &[0x78, 0x00],
            &[0x78, 0x00, 0xff, 0x67, 0x42],
            &[0x7c],
            &[0x7c, 0x87],
            &[0x7c, 0xc5, 0x88],
            &[0x79, 0, 1, 0, 2, 0x65, 0x88],
            &[0x00, 0x01],
        ] {
            assert_eq!(contents(payload), Contents::default(), "{payload:02x?}");
        }
        assert!(contents(&[0x78, 0, 0, 0, 2, 0x67, 0x42]).has_sps, "an empty unit is stepped over");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..60)) {
            contents(&payload);
        }

        #[test]
        fn arbitrary_aggregates_never_panic(units in proptest::collection::vec(0..8u8, 0..60)) {
            contents(&[&[0x78], &units[..]].concat());
        }
    }
}
