//! `profile-level-id` of H.264 (RFC 6184 §8.1): the profile must be equal, the level only limits what is sent.

use crate::codec::h264::Profile;

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

/// The profile that a `profile-level-id` means, as [`crate::codec::Format::profile`] numbers it. `None`: one that
/// no browser decodes, which is not forwarded.
pub(super) fn forwarded(profile_level_id: u32) -> Option<u8> {
    let profile = Profile::of(profile_level_id)?;
    let known =
        [Profile::ConstrainedBaseline, Profile::Baseline, Profile::Main, Profile::ConstrainedHigh, Profile::High];
    known.contains(&profile).then(|| profile.class())
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
            ("42e01f", Some(Profile::ConstrainedBaseline)),
            ("42E01F", Some(Profile::ConstrainedBaseline)),
            ("42c01e", Some(Profile::ConstrainedBaseline)),
            ("42e034", Some(Profile::ConstrainedBaseline)),
            ("4d8015", Some(Profile::ConstrainedBaseline)),
            ("58c00a", Some(Profile::ConstrainedBaseline)),
            ("42001f", Some(Profile::Baseline)),
            ("42801e", Some(Profile::Baseline)),
            ("58800a", Some(Profile::Baseline)),
            ("4d001f", Some(Profile::Main)),
            ("4d401f", Some(Profile::Main)),
            ("640028", Some(Profile::High)),
            ("640c34", Some(Profile::ConstrainedHigh)),
            ("58000a", None),
            ("6e001f", None),
            ("f4001f", None),
        ] {
            assert_eq!(parse(text).and_then(forwarded), class.map(Profile::class), "{text}");
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
