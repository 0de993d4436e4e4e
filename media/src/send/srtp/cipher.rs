//! One session key with its transform: AEAD (RFC 7714) or counter mode and HMAC (RFC 3711 §4.1.1, §4.2.1).

use super::SrtpError;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hmac;
use str0m::crypto::Aes128CmSha1_80Cipher;

/// Bytes of an AEAD tag.
const GCM_TAG: usize = 16;
/// Bytes of a truncated HMAC-SHA1-80.
const HMAC_TAG: usize = 10;
/// The E flag of an SRTCP index: encrypted.
const ENCRYPTED: u32 = 0x8000_0000;
/// Bytes of an RTCP header that stay readable.
const RTCP_CLEAR: usize = 8;

#[expect(clippy::large_enum_variant, reason = "nearly all transports use the large one, and Srtp is boxed as a whole")]
pub(super) enum Cipher {
    Gcm { key: LessSafeKey, salt: [u8; 12] },
    Cm(Box<CounterMode>),
}

pub(super) struct CounterMode {
    cipher: Box<dyn Aes128CmSha1_80Cipher>,
    auth: hmac::Key,
    salt: [u8; 14],
    /// The provider does not work in place: what is encrypted is copied here first.
    input: Vec<u8>,
}

/// The tag did not match, or the packet is beyond what the cipher takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Failed;

impl Cipher {
    /// `key`: 16 or 32 bytes.
    pub fn gcm(key: &[u8], salt: [u8; 12]) -> Option<Self> {
        let algorithm = if key.len() == 32 { &AES_256_GCM } else { &AES_128_GCM };
        Some(Cipher::Gcm { key: LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?), salt })
    }

    pub fn counter_mode(key: [u8; 16], auth: &[u8; 20], salt: [u8; 14]) -> Self {
        let provider = str0m::crypto::from_feature_flags().srtp_provider;
        Cipher::Cm(Box::new(CounterMode {
            cipher: provider.aes_128_cm_sha1_80().create_cipher(key, true),
            auth: hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, auth),
            salt,
            input: Vec::new(),
        }))
    }

    /// Protects the RTP packet that begins at `start` and ends with the buffer, in place; appends the tag.
    ///
    /// `index`: rollover counter and sequence number, 48 bits. No two packets with one SSRC may have the same.
    pub fn seal_rtp(
        &mut self,
        buffer: &mut Vec<u8>,
        start: usize,
        header_len: usize,
        ssrc: u32,
        index: u64,
    ) -> Result<(), SrtpError> {
        let too_short = SrtpError::Short { got: buffer.len().saturating_sub(start) };
        let packet = buffer.get_mut(start..).unwrap_or_default();
        let (header, body) = packet.split_at_mut_checked(header_len).ok_or(too_short)?;
        match self {
            Cipher::Gcm { key, salt } => {
                let tag = key.seal_in_place_separate_tag(rtp_nonce(salt, ssrc, index), Aad::from(header), body);
                buffer.extend_from_slice(tag.map_err(|_| SrtpError::Seal)?.as_ref());
            }
            Cipher::Cm(cm) => {
                cm.apply(ssrc, index, body).map_err(|_| SrtpError::Seal)?;
                let tag = cm.tag(packet, &roc(index));
                buffer.extend_from_slice(tag.as_ref().get(..HMAC_TAG).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Opens an RTP packet in place; answers its length without the tag. On an error the contents are undefined.
    pub fn open_rtp(
        &mut self,
        packet: &mut [u8],
        header_len: usize,
        ssrc: u32,
        index: u64,
    ) -> Result<usize, SrtpError> {
        let got = packet.len();
        let short = SrtpError::Short { got };
        match self {
            Cipher::Gcm { key, salt } => {
                let (packet, tag) = packet.split_last_chunk_mut::<GCM_TAG>().ok_or(short)?;
                let (header, body) = packet.split_at_mut_checked(header_len).ok_or(short)?;
                let nonce = rtp_nonce(salt, ssrc, index);
                key.open_in_place_separate_tag(nonce, Aad::from(header), Tag::from(*tag), body, 0..)
                    .map_err(|_| SrtpError::Forged)?;
                Ok(got - GCM_TAG)
            }
            Cipher::Cm(cm) => {
                let (packet, tag) = packet.split_last_chunk_mut::<HMAC_TAG>().ok_or(short)?;
                cm.verify(packet, &roc(index), tag).map_err(|_| SrtpError::Forged)?;
                let (_, body) = packet.split_at_mut_checked(header_len).ok_or(short)?;
                cm.apply(ssrc, index, body).map_err(|_| SrtpError::Forged)?;
                Ok(got - HMAC_TAG)
            }
        }
    }

    /// Protects the RTCP compound that begins at `start` and ends with the buffer, in place; appends index and tag.
    ///
    /// `index`: 31 bits; no two compounds with one leading SSRC may have the same.
    pub fn seal_rtcp(&mut self, buffer: &mut Vec<u8>, start: usize, index: u32) -> Result<(), SrtpError> {
        let short = SrtpError::Short { got: buffer.len().saturating_sub(start) };
        let packet = buffer.get_mut(start..).unwrap_or_default();
        let (clear, body) = packet.split_at_mut_checked(RTCP_CLEAR).ok_or(short)?;
        let ssrc = rtcp_ssrc(clear).ok_or(short)?;
        let word = (index | ENCRYPTED).to_be_bytes();
        match self {
            Cipher::Gcm { key, salt } => {
                let mut aad = [0; RTCP_CLEAR + 4];
                aad.iter_mut().zip(clear.iter().chain(&word)).for_each(|(to, from)| *to = *from);
                let tag = key
                    .seal_in_place_separate_tag(rtcp_nonce(salt, ssrc, index), Aad::from(aad), body)
                    .map_err(|_| SrtpError::Seal)?;
                buffer.extend_from_slice(tag.as_ref());
                buffer.extend_from_slice(&word);
            }
            Cipher::Cm(cm) => {
                cm.apply(ssrc, u64::from(index), body).map_err(|_| SrtpError::Seal)?;
                let tag = cm.tag(packet, &word);
                buffer.extend_from_slice(&word);
                buffer.extend_from_slice(tag.as_ref().get(..HMAC_TAG).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Opens an RTCP compound in place; answers its length without index and tag, its leading SSRC and its index.
    /// On an error the contents are undefined.
    pub fn open_rtcp(&mut self, datagram: &mut [u8]) -> Result<(usize, u32, u32), SrtpError> {
        let short = SrtpError::Short { got: datagram.len() };
        match self {
            Cipher::Gcm { key, salt } => {
                let (rest, word) = datagram.split_last_chunk_mut::<4>().ok_or(short)?;
                let (packet, tag) = rest.split_last_chunk_mut::<GCM_TAG>().ok_or(short)?;
                let (len, ssrc) = (packet.len(), rtcp_ssrc(packet).ok_or(short)?);
                let index = u32::from_be_bytes(*word) & !ENCRYPTED;
                let nonce = rtcp_nonce(salt, ssrc, index);
                let tag = Tag::from(*tag);
                if word[0] & 0x80 == 0 {
                    // Authenticated only: all of it is associated data (RFC 7714 §9.3, §17.3).
                    let aad = [&*packet, &*word].concat();
                    key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, &mut [], 0..)
                        .map_err(|_| SrtpError::Forged)?;
                    return Ok((len, ssrc, index));
                }
                let (clear, body) = packet.split_at_mut_checked(RTCP_CLEAR).ok_or(short)?;
                let mut aad = [0; RTCP_CLEAR + 4];
                aad.iter_mut().zip(clear.iter().chain(&*word)).for_each(|(to, from)| *to = *from);
                key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, body, 0..).map_err(|_| SrtpError::Forged)?;
                Ok((len, ssrc, index))
            }
            Cipher::Cm(cm) => {
                let (rest, tag) = datagram.split_last_chunk_mut::<HMAC_TAG>().ok_or(short)?;
                let (packet, word) = rest.split_last_chunk_mut::<4>().ok_or(short)?;
                let (len, ssrc) = (packet.len(), rtcp_ssrc(packet).ok_or(short)?);
                cm.verify(packet, word, tag).map_err(|_| SrtpError::Forged)?;
                let word = u32::from_be_bytes(*word);
                let index = word & !ENCRYPTED;
                if word & ENCRYPTED != 0 {
                    let (_, body) = packet.split_at_mut_checked(RTCP_CLEAR).ok_or(short)?;
                    cm.apply(ssrc, u64::from(index), body).map_err(|_| SrtpError::Forged)?;
                }
                Ok((len, ssrc, index))
            }
        }
    }
}

impl CounterMode {
    /// Encrypts or decrypts, which is the same (RFC 3711 §4.1.1).
    fn apply(&mut self, ssrc: u32, index: u64, body: &mut [u8]) -> Result<(), Failed> {
        // (salt · 2^16) XOR (SSRC · 2^64) XOR (index · 2^16)
        let mut iv = u128::from(ssrc) << 64 ^ u128::from(index) << 16;
        let mut salt = [0; 16];
        salt.iter_mut().zip(self.salt).for_each(|(to, from)| *to = from);
        iv ^= u128::from_be_bytes(salt);
        self.input.clear();
        self.input.extend_from_slice(body);
        self.cipher.encrypt(&iv.to_be_bytes(), &self.input, body).map_err(|_| Failed)
    }

    /// The tag over `packet` and what follows it unsent or after it: rollover counter or SRTCP index.
    fn tag(&self, packet: &[u8], then: &[u8; 4]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.auth);
        context.update(packet);
        context.update(then);
        context.sign()
    }

    fn verify(&self, packet: &[u8], then: &[u8; 4], tag: &[u8; HMAC_TAG]) -> Result<(), Failed> {
        let right = self.tag(packet, then);
        // All bytes are looked at, so that the time tells nothing of where the first difference is.
        let differences = right.as_ref().iter().zip(tag).fold(0, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        if differences == 0 { Ok(()) } else { Err(Failed) }
    }
}

/// The rollover counter of an index.
fn roc(index: u64) -> [u8; 4] {
    ((index >> 16) as u32).to_be_bytes()
}

/// `0 0 | SSRC | ROC | SEQ`, XOR the salt (RFC 7714 §8.1).
fn rtp_nonce(salt: &[u8; 12], ssrc: u32, index: u64) -> Nonce {
    nonce(salt, u128::from(ssrc) << 48 | u128::from(index & 0xffff_ffff_ffff))
}

/// `0 0 | SSRC | 0 0 | index`, XOR the salt (RFC 7714 §9.1).
fn rtcp_nonce(salt: &[u8; 12], ssrc: u32, index: u32) -> Nonce {
    nonce(salt, u128::from(ssrc) << 48 | u128::from(index))
}

fn nonce(salt: &[u8; 12], value: u128) -> Nonce {
    let [_, _, _, _, mut bytes @ ..] = value.to_be_bytes();
    bytes.iter_mut().zip(salt).for_each(|(b, s)| *b ^= s);
    Nonce::assume_unique_for_key(bytes)
}

/// SSRC of the first packet of a compound.
fn rtcp_ssrc(packet: &[u8]) -> Option<u32> {
    let (_, rest) = packet.split_first_chunk::<4>()?;
    rest.first_chunk::<4>().map(|ssrc| u32::from_be_bytes(*ssrc))
}

#[cfg(test)]
mod tests {
    use super::super::support::Json;
    use super::*;

    const VECTORS: &str = include_str!("../../../tests/vectors/rfc/rfc7714.json");

    fn cipher(vectors: &Json, group: &str) -> Cipher {
        Cipher::gcm(&vectors.bytes(&format!("{group}.session_key")), vectors.bytes("salt").try_into().unwrap()).unwrap()
    }

    /// RFC 7714 §16: SRTP, both key sizes, both directions.
    #[test]
    fn rtp_is_sealed_as_rfc_7714_16_says() {
        let vectors = Json::parse(VECTORS);
        for group in ["aead_aes_128_gcm", "aead_aes_256_gcm"] {
            let (plain, sealed) = (vectors.bytes("rtp_plain"), vectors.bytes(&format!("{group}.srtp")));
            let mut cipher = cipher(&vectors, group);
            // Something before the packet must stay.
            let mut buffer = [b"before", &plain[..]].concat();
            cipher.seal_rtp(&mut buffer, 6, 12, 0x5501_a0b2, 0xf17b).unwrap();
            assert_eq!(buffer, [b"before", &sealed[..]].concat(), "{group}");
            let mut opened = sealed.clone();
            let len = cipher.open_rtp(&mut opened, 12, 0x5501_a0b2, 0xf17b).unwrap();
            assert_eq!(&opened[..len], plain, "{group}");
            for bit in 0..sealed.len() * 8 {
                let mut forged = sealed.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(cipher.open_rtp(&mut forged, 12, 0x5501_a0b2, 0xf17b), Err(SrtpError::Forged));
            }
        }
    }

    /// RFC 7714 §17: SRTCP, both key sizes, encrypted and authenticated only.
    #[test]
    fn rtcp_is_sealed_as_rfc_7714_17_says() {
        let vectors = Json::parse(VECTORS);
        for group in ["aead_aes_128_gcm", "aead_aes_256_gcm"] {
            let plain = vectors.bytes("rtcp_plain");
            let mut cipher = cipher(&vectors, group);
            let mut buffer = plain.clone();
            cipher.seal_rtcp(&mut buffer, 0, 0x5d4).unwrap();
            assert_eq!(buffer, vectors.bytes(&format!("{group}.srtcp_encrypted")), "{group}");
            for form in ["srtcp_encrypted", "srtcp_auth_only"] {
                let sealed = vectors.bytes(&format!("{group}.{form}"));
                let mut opened = sealed.clone();
                assert_eq!(cipher.open_rtcp(&mut opened), Ok((plain.len(), 0x4d61_7273, 0x5d4)), "{group} {form}");
                assert_eq!(&opened[..plain.len()], plain);
                for bit in 0..sealed.len() * 8 {
                    let mut forged = sealed.clone();
                    forged[bit / 8] ^= 1 << (bit % 8);
                    assert_eq!(cipher.open_rtcp(&mut forged), Err(SrtpError::Forged), "{group} {form} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn datagrams_of_any_length_are_taken_or_refused() {
        let gcm = Cipher::gcm(&[1; 16], [2; 12]).unwrap();
        for mut cipher in [gcm, Cipher::counter_mode([1; 16], &[3; 20], [2; 14])] {
            for len in 0..80 {
                assert!(cipher.open_rtcp(&mut vec![0x80; len]).is_err());
                assert!(cipher.open_rtp(&mut vec![0x80; len], 12, 1, 1).is_err());
                let sealed = cipher.seal_rtcp(&mut vec![0x80; len], 0, 1);
                assert_eq!(sealed.is_ok(), len >= 8, "{len}");
            }
        }
    }
}
