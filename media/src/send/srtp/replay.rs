//! Which packets of a source were already taken (RFC 3711 §3.3.1, §3.3.2).

use super::SrtpError;

/// Sources remembered at most. Only authentic packets make one, so only the peer itself can fill the table; a
/// receiver reports with one SSRC a section at most.
const SOURCES_MAX: usize = 256;

/// Packets behind the newest that are told apart; RFC 3711 §3.3.2 asks for 64 at least.
const WINDOW: u64 = 128;

/// The replay lists of one direction's RTP or RTCP, a source each.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<Source>);

#[derive(Debug)]
struct Source {
    ssrc: u32,
    top: u64,
    /// Bit *i*: index `top - i` was taken.
    taken: u128,
}

impl Sources {
    /// Index of an RTP packet by its sequence number: the one nearest to the newest authentic packet (RFC 3711 §3.3.1).
    pub fn estimate(&self, ssrc: u32, seq: u16) -> u64 {
        let Some(source) = self.0.iter().find(|s| s.ssrc == ssrc) else { return u64::from(seq) };
        let here = (source.top & !0xffff) | u64::from(seq);
        if here > source.top + 0x8000 {
            here.checked_sub(0x1_0000).unwrap_or(here)
        } else if here + 0x8000 < source.top {
            here + 0x1_0000
        } else {
            here
        }
    }

    /// Takes an authentic packet, once.
    pub fn take(&mut self, ssrc: u32, index: u64) -> Result<(), SrtpError> {
        let Some(source) = self.0.iter_mut().find(|s| s.ssrc == ssrc) else {
            if self.0.len() == SOURCES_MAX {
                return Err(SrtpError::TooManySources(SOURCES_MAX));
            }
            self.0.push(Source { ssrc, top: index, taken: 1 });
            return Ok(());
        };
        if let Some(ahead) = index.checked_sub(source.top).filter(|a| *a > 0) {
            source.taken = if ahead < WINDOW { source.taken << ahead } else { 0 } | 1;
            source.top = index;
            return Ok(());
        }
        let behind = source.top - index;
        if behind >= WINDOW || source.taken >> behind & 1 == 1 {
            return Err(SrtpError::Replayed { index });
        }
        source.taken |= 1 << behind;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a set of everything taken.
        #[test]
        fn a_packet_is_taken_once_and_old_ones_never(steps in proptest::collection::vec(0u64..400, 1..300)) {
            let (mut sources, mut taken) = (Sources::default(), BTreeSet::new());
            for index in steps {
                let top = taken.last().copied();
                let fresh = top.is_none_or(|top| index > top || top - index < WINDOW) && !taken.contains(&index);
                prop_assert_eq!(sources.take(9, index).is_ok(), fresh);
                if fresh { taken.insert(index); }
            }
        }

        /// RFC 3711 §3.3.1: right for any packet less than 2^15 away from the newest.
        #[test]
        fn the_index_is_found_again(top in 0u64..1 << 40, away in -0x7fffi64..0x7fff) {
            let mut sources = Sources::default();
            sources.take(9, top).unwrap();
            if let Some(index) = top.checked_add_signed(away) {
                prop_assert_eq!(sources.estimate(9, index as u16), index);
            }
        }
    }

    #[test]
    fn the_table_of_sources_is_bounded() {
        let mut sources = Sources::default();
        for ssrc in 0..SOURCES_MAX as u32 {
            sources.take(ssrc, 1).unwrap();
        }
        assert_eq!(sources.take(1 << 20, 1), Err(SrtpError::TooManySources(SOURCES_MAX)));
        assert_eq!(sources.take(0, 2), Ok(()));
    }
}
