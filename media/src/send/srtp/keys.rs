//! Session keys from master keys (RFC 3711 §4.3, RFC 6188 §3, RFC 7714 §11 and §12).

use super::KeyError;
use crate::transport::SrtpProfile;

/// What a derived key is for (RFC 3711 §4.3.2).
#[derive(Debug, Clone, Copy)]
pub(super) enum Label {
    RtpKey = 0,
    RtpAuth = 1,
    RtpSalt = 2,
    RtcpKey = 3,
    RtcpAuth = 4,
    RtcpSalt = 5,
}

/// Master key and salt of one direction.
#[derive(Clone, Copy)]
pub(super) struct Master<'a> {
    key: &'a [u8],
    salt: [u8; 14],
}

impl<'a> Master<'a> {
    pub fn new(profile: SrtpProfile, key: &'a [u8], salt: &[u8]) -> Result<Self, KeyError> {
        let (key_len, salt_len) = lengths(profile);
        if key.len() != key_len || salt.len() != salt_len {
            return Err(KeyError { profile, key: key.len(), salt: salt.len() });
        }
        // A salt of 96 bits stands left in the 112 (RFC 7714 §11).
        let mut padded = [0; 14];
        padded.iter_mut().zip(salt).for_each(|(to, from)| *to = *from);
        Ok(Self { key, salt: padded })
    }

    /// The first `N` bytes of what the key derivation gives for a label, at a key derivation rate of 0.
    pub fn derive<const N: usize>(&self, label: Label) -> [u8; N] {
        let mut iv = [0; 16];
        iv.iter_mut().zip(self.salt).for_each(|(to, from)| *to = from);
        iv[7] ^= label as u8;
        let mut out = [0; N];
        key_stream(self.key, iv, &mut out);
        out
    }

    /// The same for keys whose length depends on the profile: as long as the master key.
    pub fn derive_key(&self, label: Label) -> Vec<u8> {
        let all: [u8; 32] = self.derive(label);
        all.iter().copied().take(self.key.len()).collect()
    }
}

/// Bytes of a master key and of a master salt.
fn lengths(profile: SrtpProfile) -> (usize, usize) {
    match profile {
        SrtpProfile::AeadAes256Gcm => (32, 12),
        SrtpProfile::AeadAes128Gcm => (16, 12),
        SrtpProfile::Aes128CmSha1_80 => (16, 14),
    }
}

/// AES in counter mode over zeros: the pseudo-random function of RFC 3711 §4.3.3 and RFC 6188 §3.
///
/// `key`: 16 or 32 bytes; `iv`: the counter block of the first 16 bytes, whose last two bytes are the counter.
fn key_stream(key: &[u8], iv: [u8; 16], out: &mut [u8]) {
    let srtp = str0m::crypto::from_feature_flags().srtp_provider;
    let [prefix @ .., c1, c0] = iv;
    let first = u16::from_be_bytes([c1, c0]);
    for (i, chunk) in out.chunks_mut(16).enumerate() {
        let mut block = [0; 16];
        let counter = first.wrapping_add(i as u16).to_be_bytes();
        block.iter_mut().zip(prefix.iter().chain(&counter)).for_each(|(to, from)| *to = *from);
        // The provider may write a second block (padding).
        let mut stream = [0; 32];
        match key.len() {
            32 => srtp.srtp_aes_256_ecb_round(key, &block, &mut stream),
            _ => srtp.srtp_aes_128_ecb_round(key, &block, &mut stream),
        }
        chunk.iter_mut().zip(stream).for_each(|(to, from)| *to = from);
    }
}

#[cfg(test)]
mod tests {
    use super::super::support::Json;
    use super::*;

    const VECTORS: &str = include_str!("../../../tests/vectors/rfc/rfc3711-rfc6188.json");

    #[test]
    fn keys_are_derived_as_rfc_3711_b3_says() {
        let vectors = Json::parse(VECTORS);
        let get = |name: &str| vectors.bytes(&format!("kdf_aes_128.{name}"));
        let (key, salt) = (get("master_key"), get("master_salt"));
        let master = Master::new(SrtpProfile::Aes128CmSha1_80, &key, &salt).unwrap();
        assert_eq!(master.derive_key(Label::RtpKey), get("label0_cipher_key"));
        assert_eq!(master.derive::<14>(Label::RtpSalt).to_vec(), get("label2_salt"));
        assert_eq!(master.derive::<20>(Label::RtpAuth).to_vec(), get("label1_auth_key_first20"));
        assert_eq!(master.derive::<94>(Label::RtpAuth).to_vec(), get("label1_auth_key_94"));
    }

    #[test]
    fn counter_mode_gives_the_key_streams_of_rfc_3711_b2_and_rfc_6188_7_1() {
        let vectors = Json::parse(VECTORS);
        for group in ["aes_128_cm_keystream", "aes_256_cm_keystream"] {
            let get = |name: &str| vectors.bytes(&format!("{group}.{name}"));
            let mut stream = [0; 48];
            key_stream(&get("session_key"), get("counter_block_0").try_into().unwrap(), &mut stream);
            assert_eq!(stream.to_vec(), get("keystream_48"), "{group}");
        }
    }

    #[test]
    fn keys_of_another_length_are_refused() {
        for profile in [SrtpProfile::AeadAes256Gcm, SrtpProfile::AeadAes128Gcm, SrtpProfile::Aes128CmSha1_80] {
            let (key, salt) = lengths(profile);
            assert!(Master::new(profile, &[0; 32][..key], &[0; 14][..salt]).is_ok());
            assert_eq!(
                Master::new(profile, &[0; 15], &[0; 14][..salt]).err(),
                Some(KeyError { profile, key: 15, salt })
            );
            assert_eq!(Master::new(profile, &[0; 32][..key], &[]).err(), Some(KeyError { profile, key, salt: 0 }));
        }
    }
}
