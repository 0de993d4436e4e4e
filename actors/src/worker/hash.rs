//! A fast keyed hasher for the worker's tables: every datagram costs one look-up, where SipHash would show.
//!
//! Words are mixed by a 64 × 64 → 128 bit multiplication folded to 64 bits, keyed with two random words per
//! table, so that a peer cannot choose addresses that collide. Tables hold only what a transport of ours
//! brought in (a few addresses each), which bounds what a lucky guess could do.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers with one table's random key.
#[derive(Debug, Clone)]
pub struct Keyed {
    start: u64,
    factor: u64,
}

impl Default for Keyed {
    /// A new random key, from the standard library's per-process randomness.
    fn default() -> Self {
        let random = RandomState::new();
        Self { start: random.hash_one(0u8), factor: random.hash_one(1u8) | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;
    fn build_hasher(&self) -> Folded {
        Folded { state: self.start, factor: self.factor }
    }
}

/// The state of one hash.
#[derive(Debug)]
pub struct Folded {
    state: u64,
    factor: u64,
}

/// An odd constant with evenly spread bits (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

impl Folded {
    fn mix(&mut self, word: u64) {
        self.state = fold(self.state ^ word, SPREAD).wrapping_add(word.rotate_left(29) ^ self.factor);
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }
    fn write_u8(&mut self, n: u8) {
        self.mix(u64::from(n));
    }
    fn write_u16(&mut self, n: u16) {
        self.mix(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
    fn write_u128(&mut self, n: u128) {
        self.mix(n as u64);
        self.mix((n >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        fold(self.state, self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn equal_values_hash_equal_and_tables_have_different_keys() {
        let (a, b) = (Keyed::default(), Keyed::default());
        assert_eq!(a.hash_one("ufrag"), a.hash_one(String::from("ufrag")));
        assert_ne!(a.hash_one("ufrag"), b.hash_one("ufrag"));
        assert_ne!(a.hash_one("ab"), a.hash_one("ab\0"));
    }

    /// 65,536 keys that differ only in a port, in 2^16 buckets by the low and by the top seven bits that
    /// hashbrown uses: a random function leaves 1 − 1/e = 63 % of the buckets filled.
    #[test]
    fn neighbouring_addresses_spread_over_low_and_high_bits() {
        let keys = Keyed::default();
        let mut low = HashSet::new();
        let mut high = [0u32; 128];
        for port in 0..=u16::MAX {
            let hash = keys.hash_one((0xffff_7f00_0001u128, u64::from(port)));
            low.insert(hash & 0xffff);
            high[(hash >> 57) as usize] += 1;
        }
        assert!(low.len() > 36_000, "{}", low.len());
        assert!(high.iter().all(|n| (256..1_024).contains(n)), "{high:?}");
    }
}
