//! What all transports of a process share: one certificate, one DTLS configuration, one set of ciphers.
//!
//! dimpl tests its algorithms each time a configuration is made, which is five sixths of the cost of a join
//! when every transport makes its own (1,280 against 203 µs).

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
    failed: AtomicBool,
}

impl Handshake {
    /// Keys, once the handshake is complete.
    pub(super) fn keys(&self) -> Option<&SrtpKeys> {
        self.keys.get()
    }
    /// DTLS cannot go on.
    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
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
        match &result {
            // Full queues drain, and a second ClientHello is ignored: DTLS goes on.
            Ok(())
            | Err(
                DtlsImplError::ReceiveQueueFull
                | DtlsImplError::TransmitQueueFull
                | DtlsImplError::RenegotiationAttempt
                | DtlsImplError::TooManyClientHelloFragments
                | DtlsImplError::ConnectionClosed,
            ) => {}
            // dimpl drops by itself what cannot be read or authenticated; the rest ends the connection.
            Err(_) => self.handshake.failed.store(true, Ordering::Relaxed),
        }
        result
    }
}

impl DtlsInstance for Watched {
    fn set_active(&mut self, active: bool) {
        self.dtls.set_active(active);
    }
    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        let result = self.dtls.handle_packet(packet);
        self.watch(result)
    }
    fn poll_output<'a>(&mut self, buffer: &'a mut [u8]) -> DtlsOutput<'a> {
        let active = self.dtls.is_active();
        let output = self.dtls.poll_output(buffer);
        if let DtlsOutput::KeyingMaterial(material, profile) = &output
            && let Some(keys) = split_keys(material.as_ref(), *profile, active)
        {
            let _ = self.handshake.keys.set(keys);
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
