//! SRTP and SRTCP with the keys of one transport (RFC 3711, RFC 7714), or none of it for simulations.
//!
//! Sealing is done in place at the end of the sink's buffer, so that a packet is copied once on its way out.
//! Opening authenticates first: until then nothing of the packet changes any state.

mod cipher;
mod keys;
mod replay;

use crate::transport::{SrtpKeys, SrtpProfile};
use cipher::Cipher;
use keys::{Label, Master};
use replay::Sources;

#[cfg(test)]
#[path = "../../../tests/support/mod.rs"]
mod support;

/// First SRTCP index that we use.
///
/// str0m protects its own RTCP with the same keys and counts from 0. An AEAD nonce is made of SSRC and index, so
/// equal indices under one SSRC would break the cipher; from here on the two cannot meet. A peer that saw ours takes
/// a report that str0m makes up for a stream of ours as replayed, which is right: str0m never sends media on it.
const RTCP_INDEX_FIRST: u32 = 1 << 30;
const RTCP_INDEX_MAX: u32 = (1 << 31) - 1;

/// Master keys whose length is not the profile's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{profile:?} with a key of {key} and a salt of {salt} bytes")]
pub struct KeyError {
    /// The agreed profile.
    pub profile: SrtpProfile,
    /// Bytes of the key that did not fit.
    pub key: usize,
    /// Bytes of the salt that did not fit.
    pub salt: usize,
}

/// Why a packet was not sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SrtpError {
    /// Too short for what it has to hold.
    #[error("{got} bytes are too short")]
    Short {
        /// Bytes that there were.
        got: usize,
    },
    /// No RTP of version 2.
    #[error("is not RTP")]
    NotRtp,
    /// The tag does not match: made with other keys, or changed on the way.
    #[error("authentication failed")]
    Forged,
    /// Authentic, and already taken or older than the replay window.
    #[error("index {index} was taken before")]
    Replayed {
        /// Packet index.
        index: u64,
    },
    /// Authentic, from one source more than are remembered.
    #[error("more than {0} sources")]
    TooManySources(usize),
    /// The cipher refused to encrypt.
    #[error("could not be encrypted")]
    Seal,
    /// All SRTCP indices of these keys are used.
    #[error("all SRTCP indices are used")]
    Exhausted,
}

/// An RTP packet that was opened in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedRtp {
    /// Bytes of header, CSRCs and extensions.
    pub header_len: usize,
    /// Bytes of the whole packet without the tag.
    pub len: usize,
    /// Sequence number, extended by the rollover counter; only the sequence number where nothing is protected.
    pub index: u64,
}

/// How the packets of a transport are protected.
pub enum Protection {
    /// By SRTP.
    Srtp(Box<Srtp>),
    /// Not at all: simulations and loopback tests.
    Plain,
}

impl Protection {
    /// Derives the session keys.
    ///
    /// # Errors
    /// [`KeyError`] where a key or a salt has another length than the profile's.
    pub fn new(keys: &SrtpKeys) -> Result<Self, KeyError> {
        let profile = keys.profile;
        let send = Master::new(profile, &keys.send_key, &keys.send_salt)?;
        let receive = Master::new(profile, &keys.receive_key, &keys.receive_salt)?;
        let wrong = KeyError { profile, key: keys.send_key.len(), salt: keys.send_salt.len() };
        Ok(Self::Srtp(Box::new(Srtp {
            send_rtp: rtp_cipher(profile, send).ok_or(wrong)?,
            send_rtcp: rtcp_cipher(profile, send).ok_or(wrong)?,
            receive_rtp: rtp_cipher(profile, receive).ok_or(wrong)?,
            receive_rtcp: rtcp_cipher(profile, receive).ok_or(wrong)?,
            rtcp_index: RTCP_INDEX_FIRST,
            rtp_sources: Sources::default(),
            rtcp_sources: Sources::default(),
        })))
    }

    /// Protects the RTP packet that begins at `start` and ends with the buffer: encrypts in place what follows the
    /// header of `header_len` bytes, and appends the tag.
    ///
    /// `ext_seq`: sequence number extended from a start below 2^16, of which the rollover counter is a part. The
    /// caller never seals two packets with the same `ssrc` and `ext_seq`: that would use a nonce twice.
    ///
    /// # Errors
    /// [`SrtpError::Short`] where there are not `header_len` bytes, [`SrtpError::Seal`]; nothing may be sent then.
    pub fn seal_rtp(
        &mut self,
        buffer: &mut Vec<u8>,
        start: usize,
        header_len: usize,
        ssrc: u32,
        ext_seq: u64,
    ) -> Result<(), SrtpError> {
        match self {
            Protection::Srtp(srtp) => srtp.send_rtp.seal_rtp(buffer, start, header_len, ssrc, ext_seq),
            Protection::Plain => Ok(()),
        }
    }

    /// Protects the RTCP compound that begins at `start` and ends with the buffer; appends index and tag.
    ///
    /// # Errors
    /// As [`Self::seal_rtp`], and [`SrtpError::Exhausted`] after 2^30 compounds.
    pub fn seal_rtcp(&mut self, buffer: &mut Vec<u8>, start: usize) -> Result<(), SrtpError> {
        let Protection::Srtp(srtp) = self else { return Ok(()) };
        if srtp.rtcp_index > RTCP_INDEX_MAX {
            return Err(SrtpError::Exhausted);
        }
        let index = srtp.rtcp_index;
        srtp.rtcp_index += 1;
        srtp.send_rtcp.seal_rtcp(buffer, start, index)
    }

    /// Opens an RTP packet of the peer in place.
    ///
    /// # Errors
    /// [`SrtpError`]; the contents are undefined then, and no state has changed.
    pub fn open_rtp(&mut self, packet: &mut [u8]) -> Result<OpenedRtp, SrtpError> {
        let (header_len, seq, ssrc) = rtp_header(packet)?;
        match self {
            Protection::Srtp(srtp) => {
                let index = srtp.rtp_sources.estimate(ssrc, seq);
                let len = srtp.receive_rtp.open_rtp(packet, header_len, ssrc, index)?;
                srtp.rtp_sources.take(ssrc, index)?;
                Ok(OpenedRtp { header_len, len, index })
            }
            Protection::Plain => Ok(OpenedRtp { header_len, len: packet.len(), index: u64::from(seq) }),
        }
    }

    /// Opens an RTCP compound of the peer in place; answers its length without index and tag.
    ///
    /// # Errors
    /// [`SrtpError`]; the contents are undefined then, and no state has changed.
    pub fn open_rtcp(&mut self, datagram: &mut [u8]) -> Result<usize, SrtpError> {
        match self {
            Protection::Srtp(srtp) => {
                let (len, ssrc, index) = srtp.receive_rtcp.open_rtcp(datagram)?;
                srtp.rtcp_sources.take(ssrc, u64::from(index))?;
                Ok(len)
            }
            Protection::Plain => Ok(datagram.len()),
        }
    }
}

impl std::fmt::Debug for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys are never printed.
        match self {
            Protection::Srtp(_) => f.write_str("Srtp"),
            Protection::Plain => f.write_str("Plain"),
        }
    }
}

/// The session keys of both directions and what was used of them.
pub struct Srtp {
    send_rtp: Cipher,
    send_rtcp: Cipher,
    receive_rtp: Cipher,
    receive_rtcp: Cipher,
    rtcp_index: u32,
    rtp_sources: Sources,
    rtcp_sources: Sources,
}

fn rtp_cipher(profile: SrtpProfile, master: Master<'_>) -> Option<Cipher> {
    cipher(profile, master, Label::RtpKey, Label::RtpAuth, Label::RtpSalt)
}

fn rtcp_cipher(profile: SrtpProfile, master: Master<'_>) -> Option<Cipher> {
    cipher(profile, master, Label::RtcpKey, Label::RtcpAuth, Label::RtcpSalt)
}

fn cipher(profile: SrtpProfile, master: Master<'_>, key: Label, auth: Label, salt: Label) -> Option<Cipher> {
    match profile {
        SrtpProfile::AeadAes256Gcm | SrtpProfile::AeadAes128Gcm => {
            Cipher::gcm(&master.derive_key(key), master.derive(salt))
        }
        SrtpProfile::Aes128CmSha1_80 => {
            Some(Cipher::counter_mode(master.derive(key), &master.derive(auth), master.derive(salt)))
        }
    }
}

/// Length of header, CSRCs and extensions; sequence number; SSRC (RFC 3550 §5.1, §5.3.1).
fn rtp_header(packet: &[u8]) -> Result<(usize, u16, u32), SrtpError> {
    let short = SrtpError::Short { got: packet.len() };
    let Some((&[first, _, q1, q0, _, _, _, _, s3, s2, s1, s0], rest)) = packet.split_first_chunk::<12>() else {
        return Err(short);
    };
    if first >> 6 != 2 {
        return Err(SrtpError::NotRtp);
    }
    let mut header_len = 12 + 4 * usize::from(first & 0x0f);
    if first & 0x10 != 0 {
        let extension = rest.get(header_len - 12..).unwrap_or_default();
        let Some(&[_, _, l1, l0]) = extension.first_chunk::<4>() else { return Err(short) };
        header_len += 4 + 4 * usize::from(u16::from_be_bytes([l1, l0]));
    }
    if header_len > packet.len() {
        return Err(short);
    }
    Ok((header_len, u16::from_be_bytes([q1, q0]), u32::from_be_bytes([s3, s2, s1, s0])))
}
