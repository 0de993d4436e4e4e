//! What all transports of a process share: one certificate, one DTLS configuration, one set of ciphers.
//!
//! dimpl tests its algorithms each time a configuration is made, which is five sixths of the cost of a join
//! when every transport makes its own (1,280 against 203 µs).

use super::failure::DtlsFailure;
use super::srtp::RING_SRTP;
use super::{SrtpKeys, SrtpProfile};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion,
    SrtpProfile as DtlsSrtpProfile,
};
use str0m::crypto::{CryptoError, CryptoProvider, from_feature_flags};
use str0m::{Rtc, RtcConfig};

/// Certificate, DTLS configuration and ciphers of this process. Cheap to clone.
#[derive(Clone)]
pub struct Shared(Arc<Kind>);

enum Kind {
    WebRtc(WebRtcShared),
    /// Numbers the transports: simulations are repeatable.
    Plain(AtomicU64),
}

pub(super) struct WebRtcShared {
    certificate: DtlsCert,
    fingerprint: [u8; 32],
    dtls: Arc<dimpl::Config>,
    crypto: Arc<CryptoProvider>,
}

/// The process has no working cryptography.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCrypto {
    /// No certificate could be made.
    #[error("cannot make a DTLS certificate")]
    Certificate,
    /// The DTLS configuration failed its self-test.
    #[error("DTLS self-test: {0}")]
    SelfTest(String),
}

impl Shared {
    /// Makes a certificate and tests the algorithms; takes about a millisecond. The certificate lives as long
    /// as the process: its fingerprint is what peers compare, not its name or dates.
    ///
    /// # Errors
    /// [`NoCrypto`]: this process cannot serve WebRTC.
    pub fn new() -> Result<Shared, NoCrypto> {
        let mut crypto = from_feature_flags();
        let certificate = crypto.dtls_provider.generate_certificate().ok_or(NoCrypto::Certificate)?;
        // ICE proves the peer's address before DTLS: a cookie would only cost a round trip.
        let dtls = dimpl::Config::builder().use_server_cookie(false).mtu(str0m::DATAGRAM_MTU_TARGET);
        let dtls = dtls.build().map_err(|e| NoCrypto::SelfTest(e.to_string()))?;
        crypto.dtls_provider = &SHARED_DTLS;
        crypto.srtp_provider = &RING_SRTP;
        let fingerprint = crypto.sha256_provider.sha256(&certificate.certificate);
        let (dtls, crypto) = (Arc::new(dtls), Arc::new(crypto));
        Ok(Shared(Arc::new(Kind::WebRtc(WebRtcShared { certificate, fingerprint, dtls, crypto }))))
    }

    /// For simulations: transports without ICE, DTLS and SRTP.
    pub fn plain() -> Shared {
        Shared(Arc::new(Kind::Plain(AtomicU64::new(0))))
    }

    pub(super) fn webrtc(&self) -> Result<&WebRtcShared, u64> {
        match &*self.0 {
            Kind::WebRtc(shared) => Ok(shared),
            Kind::Plain(count) => Err(count.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &*self.0 {
            Kind::WebRtc(_) => "Shared::WebRtc",
            Kind::Plain(_) => "Shared::Plain",
        })
    }
}

impl WebRtcShared {
    /// SHA-256 of our certificate.
    pub(super) fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// Builds `config` with what is shared. What the DTLS handshake yields arrives in the [`Handshake`].
    pub(super) fn build(&self, config: RtcConfig, now: Instant) -> (Rtc, Arc<Handshake>) {
        let handshake = Arc::new(Handshake::default());
        let building = Building { dtls: self.dtls.clone(), handshake: handshake.clone() };
        BUILDING.set(Some(building));
        let config = config.set_crypto_provider(self.crypto.clone()).set_dtls_cert(self.certificate.clone());
        let rtc = config.build(now);
        BUILDING.set(None);
        (rtc, handshake)
    }
}

/// What the DTLS instance of one transport tells us beside str0m.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    keys: OnceLock<SrtpKeys>,
    failure: OnceLock<DtlsFailure>,
    /// The record number after the last one that went out unencrypted.
    next_record: AtomicU64,
    /// What goes out is encrypted from now on.
    encrypted: AtomicBool,
    begun: AtomicBool,
    /// A whole ClientHello came.
    greeted: AtomicBool,
}

impl Handshake {
    /// Keys, once the handshake is complete.
    pub(super) fn keys(&self) -> Option<&SrtpKeys> {
        self.keys.get()
    }

    /// Why DTLS cannot go on.
    pub(super) fn failure(&self) -> Option<DtlsFailure> {
        self.failure.get().copied()
    }

    /// Either end has said something.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// A fatal alert (RFC 6347 §4.1, RFC 5246 §7.2): dimpl writes none when a handshake fails. None once what we send
    /// is encrypted: the peer would not believe it.
    pub(super) fn alert(&self, description: u8) -> Option<Vec<u8>> {
        const ALERT: u8 = 21;
        const FATAL: u8 = 2;
        if self.encrypted.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next_record.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        // Epoch 0 and 48 bits of record number.
        let mut record = vec![ALERT, 254, 253, 0, 0];
        record.extend(&number[2..]);
        record.extend([0, 2, FATAL, description]);
        Some(record)
    }

    /// A datagram came in.
    fn received(&self, datagram: &[u8]) {
        self.begun.store(true, Ordering::Relaxed);
        // RFC 6347 §4.2.2: a handshake record of epoch 0 that holds all of a message of type 1.
        if let [22, _, _, 0, 0, _, _, _, _, _, _, _, _, 1, l0, l1, l2, _, _, 0, 0, 0, f0, f1, f2, ..] = datagram
            && [l0, l1, l2] == [f0, f1, f2]
        {
            self.greeted.store(true, Ordering::Relaxed);
        }
    }

    /// DTLS has nothing more to say. dimpl drops a ClientHello in which it knows no cipher suite as one that cannot be
    /// read; whoever sent it would wait for ever.
    fn idle(&self) {
        if self.greeted.load(Ordering::Relaxed) && self.next_record.load(Ordering::Relaxed) == 0 {
            let _ = self.failure.set(DtlsFailure::NothingInCommon);
        }
    }

    /// Reads the headers of the records in a datagram that goes out.
    fn sent(&self, mut datagram: &[u8]) {
        self.begun.store(true, Ordering::Relaxed);
        const HANDSHAKE: u8 = 22;
        while let Some((&[kind, _, _, e0, e1, n0, n1, n2, n3, n4, n5, l0, l1], rest)) =
            datagram.split_first_chunk::<13>()
        {
            let (body, next) = rest.split_at_checked(usize::from(u16::from_be_bytes([l0, l1]))).unwrap_or_default();
            if [e0, e1] == [0, 0] {
                let number = u64::from_be_bytes([0, 0, n0, n1, n2, n3, n4, n5]);
                self.next_record.fetch_max(number + 1, Ordering::Relaxed);
                if kind == HANDSHAKE && agrees_on_srtp(body) == Some(false) {
                    // It could only end in a connection that carries nothing (RFC 5764 §4.1).
                    let _ = self.failure.set(DtlsFailure::NoSrtpProfile);
                }
            } else {
                self.encrypted.store(true, Ordering::Relaxed);
            }
            datagram = next;
        }
    }
}

/// Whether a ServerHello has the extension use_srtp; none for any other handshake message.
fn agrees_on_srtp(message: &[u8]) -> Option<bool> {
    const SERVER_HELLO: u8 = 2;
    const USE_SRTP: u16 = 14;
    // RFC 6347 §4.2.2, RFC 5246 §7.4.1.3: header; version, random; session id; cipher suite, compression; extensions.
    let body = message.strip_prefix(&[SERVER_HELLO])?.get(11..)?;
    let (session_id, rest) = body.get(34..)?.split_first()?;
    let mut extensions = rest.get(usize::from(*session_id) + 3..)?.get(2..).unwrap_or_default();
    while let Some((&[k0, k1, l0, l1], rest)) = extensions.split_first_chunk::<4>() {
        if u16::from_be_bytes([k0, k1]) == USE_SRTP {
            return Some(true);
        }
        extensions = rest.get(usize::from(u16::from_be_bytes([l0, l1]))..).unwrap_or_default();
    }
    Some(false)
}

struct Building {
    dtls: Arc<dimpl::Config>,
    handshake: Arc<Handshake>,
}

thread_local! {
    /// str0m makes the DTLS instance inside `RtcConfig::build`, through a provider that must be `'static`. This
    /// is how [`WebRtcShared::build`] reaches the instance that is being made; it is empty at all other times.
    static BUILDING: RefCell<Option<Building>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct SharedDtls;

static SHARED_DTLS: SharedDtls = SharedDtls;

impl DtlsProvider for SharedDtls {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        from_feature_flags().dtls_provider.generate_certificate()
    }

    fn new_dtls(
        &self,
        certificate: &DtlsCert,
        now: Instant,
        _version: DtlsVersion,
        _mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let Some(Building { dtls, handshake }) = BUILDING.take() else {
            return Err(CryptoError::Other("made outside of Shared".to_owned()));
        };
        let (certificate, private_key) = (certificate.certificate.clone(), certificate.private_key.clone());
        let certificate = dimpl::DtlsCertificate { certificate, private_key };
        Ok(Box::new(Watched { dtls: dimpl::Dtls::new_12(dtls, certificate, now), handshake }))
    }
}

/// A DTLS instance whose keying material and failures are copied for us.
struct Watched {
    dtls: dimpl::Dtls,
    handshake: Arc<Handshake>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

impl Watched {
    fn watch(&self, result: Result<(), DtlsImplError>) -> Result<(), DtlsImplError> {
        // dimpl drops by itself what cannot be read or authenticated.
        if let Some(failure) = result.as_ref().err().and_then(DtlsFailure::of) {
            let _ = self.handshake.failure.set(failure);
        }
        result
    }
}

impl DtlsInstance for Watched {
    fn set_active(&mut self, active: bool) {
        self.dtls.set_active(active);
    }
    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.handshake.received(packet);
        let result = self.dtls.handle_packet(packet);
        self.watch(result)
    }
    fn poll_output<'a>(&mut self, buffer: &'a mut [u8]) -> DtlsOutput<'a> {
        let active = self.dtls.is_active();
        let output = self.dtls.poll_output(buffer);
        match &output {
            DtlsOutput::Packet(datagram) => self.handshake.sent(datagram),
            DtlsOutput::Timeout(_) => self.handshake.idle(),
            DtlsOutput::KeyingMaterial(material, profile) => {
                if let Some(keys) = split_keys(material.as_ref(), *profile, active) {
                    let _ = self.handshake.keys.set(keys);
                }
            }
            _ => {}
        }
        output
    }
    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        let result = self.dtls.handle_timeout(now);
        self.watch(result)
    }
    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.dtls.send_application_data(data)
    }
    fn is_active(&self) -> bool {
        self.dtls.is_active()
    }
    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.dtls.protocol_version()
    }
    fn is_closing(&self) -> bool {
        self.dtls.is_closing()
    }
    fn is_closed(&self) -> bool {
        self.dtls.is_closed()
    }
    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.dtls.close()
    }
}

/// Keying material is client key, server key, client salt, server salt (RFC 5764 §4.2).
fn split_keys(material: &[u8], profile: DtlsSrtpProfile, we_are_client: bool) -> Option<SrtpKeys> {
    let profile = match profile {
        DtlsSrtpProfile::AEAD_AES_256_GCM => SrtpProfile::AeadAes256Gcm,
        DtlsSrtpProfile::AEAD_AES_128_GCM => SrtpProfile::AeadAes128Gcm,
        DtlsSrtpProfile::AES128_CM_SHA1_80 => SrtpProfile::Aes128CmSha1_80,
        _ => return None,
    };
    let (key, salt) = (profile.key_len(), profile.salt_len());
    let (client_key, rest) = material.split_at_checked(key)?;
    let (server_key, rest) = rest.split_at_checked(key)?;
    let (client_salt, rest) = rest.split_at_checked(salt)?;
    let server_salt = rest.get(..salt)?;
    let (ours, theirs) = ((client_key, client_salt), (server_key, server_salt));
    let (send, receive) = if we_are_client { (ours, theirs) } else { (theirs, ours) };
    Some(SrtpKeys {
        profile,
        send_key: send.0.to_vec(),
        send_salt: send.1.to_vec(),
        receive_key: receive.0.to_vec(),
        receive_salt: receive.1.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cut_and_sorted_by_who_sends() {
        // RFC 5764 §4.2: order of the four parts; lengths of RFC 7714 §12.
        let material: Vec<u8> = (0..56).collect();
        let server = split_keys(&material, DtlsSrtpProfile::AEAD_AES_128_GCM, false).unwrap();
        assert_eq!(server.receive_key, (0..16).collect::<Vec<u8>>());
        assert_eq!(server.send_key, (16..32).collect::<Vec<u8>>());
        assert_eq!(server.receive_salt, (32..44).collect::<Vec<u8>>());
        assert_eq!(server.send_salt, (44..56).collect::<Vec<u8>>());
        let client = split_keys(&material, DtlsSrtpProfile::AEAD_AES_128_GCM, true).unwrap();
        assert_eq!(client.send_key, server.receive_key);
        assert_eq!(client.receive_salt, server.send_salt);
        assert!(split_keys(&material[..55], DtlsSrtpProfile::AEAD_AES_128_GCM, false).is_none());
    }
}
