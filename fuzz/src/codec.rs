//! Payloads of every codec: where a decoder may begin.

use rondo_media::codec::Codec;
use rondo_media::codec::h264::{Profile, contents, profile_class};

/// The first byte and three more choose a `profile-level-id`; the rest is a payload, read as each codec's.
pub fn payload(data: &[u8]) {
    let Some((id, payload)) = data.split_first_chunk::<3>() else { return };
    let id = u32::from_be_bytes([0, id[0], id[1], id[2]]);
    // Levels tell nothing of the profile.
    assert_eq!(profile_class(id), profile_class(id & 0xff_ff00 | 0x1f));
    assert_eq!(Profile::of(id).map(Profile::class), profile_class(id));
    for codec in Codec::ALL {
        let begins = codec.starts_key_frame(payload);
        assert!(codec == Codec::Opus || !(begins && payload.is_empty()), "{codec:?}: nothing is no beginning");
    }
    let found = contents(payload);
    if payload.first().is_some_and(|first| (25..=27).contains(&(first & 0x1f))) {
        // Interleaved mode is never negotiated.
        assert!(!found.has_sps && !found.starts_idr);
    }
}
