//! `profile-level-id` of H.264 (RFC 6184 §8.1): the profile must be equal, the level only limits what is sent.

/// Profiles that are forwarded, as [`crate::codec::Format::profile`] numbers them.
const CONSTRAINED_BASELINE: u8 = 0;
const BASELINE: u8 = 1;
const MAIN: u8 = 2;
const CONSTRAINED_HIGH: u8 = 3;
const HIGH: u8 = 4;

/// `profile-level-id` where none is given: Baseline, level 1 (RFC 6184 §8.1).
pub(super) const DEFAULT: u32 = 0x42_00_0a;
/// Level 5.2, the highest that browsers encode: a forwarder limits nobody.
const RECEIVE_LEVEL: u32 = 0x34;

/// `42e01f`: six hexadecimal digits in either case.
pub(super) fn parse(value: &str) -> Option<u32> {
    if value.len() == 6 && value.bytes().all(|b| b.is_ascii_hexdigit()) {
        u32::from_str_radix(value, 16).ok()
    } else {
        None
    }
}

/// Which profile a `profile-level-id` means (RFC 6184 §8.1, table 5): two texts that mean the same profile
/// may differ in constraint bits. `None`: a profile that is not forwarded.
pub(super) fn profile_class(profile_level_id: u32) -> Option<u8> {
    let [_, idc, constraints, _] = profile_level_id.to_be_bytes();
    let bits = |mask: u8, value: u8| constraints & mask == value;
    match idc {
        0x42 if bits(0b0100_1111, 0b0100_0000) => Some(CONSTRAINED_BASELINE),
        0x4d if bits(0b1000_1111, 0b1000_0000) => Some(CONSTRAINED_BASELINE),
        0x58 if bits(0b1100_1111, 0b1100_0000) => Some(CONSTRAINED_BASELINE),
        0x42 if bits(0b0100_1111, 0) => Some(BASELINE),
        0x58 if bits(0b1100_1111, 0b1000_0000) => Some(BASELINE),
        0x4d if bits(0b1010_1111, 0) => Some(MAIN),
        0x64 if constraints == 0 => Some(HIGH),
        0x64 if constraints == 0b0000_1100 => Some(CONSTRAINED_HIGH),
        _ => None,
    }
}

/// The `profile-level-id` to answer with: profile as offered, our own level where the two directions may
/// differ, else never above the offered one (RFC 6184 §8.2.2).
pub(super) fn answer(offered: u32, asymmetry_allowed: bool) -> u32 {
    let level = offered & 0xff;
    let level = if asymmetry_allowed { RECEIVE_LEVEL } else { level.min(RECEIVE_LEVEL) };
    (offered & 0xff_ff00) | level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_told_by_meaning() {
        // RFC 6184 table 5, and what cameras and browsers send.
        for (text, class) in [
            ("42e01f", Some(CONSTRAINED_BASELINE)),
            ("42E01F", Some(CONSTRAINED_BASELINE)),
            ("42c01e", Some(CONSTRAINED_BASELINE)),
            ("42e034", Some(CONSTRAINED_BASELINE)),
            ("4d8015", Some(CONSTRAINED_BASELINE)),
            ("58c00a", Some(CONSTRAINED_BASELINE)),
            ("42001f", Some(BASELINE)),
            ("42801e", Some(BASELINE)),
            ("58800a", Some(BASELINE)),
            ("4d001f", Some(MAIN)),
            ("4d401f", Some(MAIN)),
            ("640028", Some(HIGH)),
            ("640c34", Some(CONSTRAINED_HIGH)),
            ("58000a", None),
            ("6e001f", None),
            ("f4001f", None),
        ] {
            assert_eq!(parse(text).and_then(profile_class), class, "{text}");
        }
        for bad in ["", "42e0", "42e01g", "+2e01f", "42e01f0"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_level_is_ours_only_where_directions_may_differ() {
        assert_eq!(answer(0x42e01e, true), 0x42e034);
        assert_eq!(answer(0x42e015, false), 0x42e015);
        assert_eq!(answer(0x42e03e, false), 0x42e034);
    }
}
