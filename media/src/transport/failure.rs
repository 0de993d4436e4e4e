//! Why a DTLS handshake failed: a closed set of codes for logs and metrics, and the alert that tells the peer.

use str0m::crypto::dtls::DtlsImplError;

/// Why a DTLS handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DtlsFailure {
    /// The peer's certificate has a key or a signature that cannot be checked here, such as RSA.
    CertificateUnsupported,
    /// The peer sent no certificate, as one does that has none of a kind that was asked for.
    CertificateMissing,
    /// The certificate is not the one whose fingerprint was offered (RFC 8122 §6).
    FingerprintMismatch,
    /// No common version, cipher suite, key exchange group or extension.
    NothingInCommon,
    /// No common SRTP protection profile (RFC 5764 §4.1).
    NoSrtpProfile,
    /// A signature or the Finished message is wrong.
    NotAuthentic,
    /// The peer gave up by an alert of its own.
    AlertReceived,
    /// Messages that do not fit together, or a fault inside.
    Failed,
}

impl DtlsFailure {
    /// Every failure, in label order.
    pub const ALL: [DtlsFailure; 8] = [
        DtlsFailure::CertificateUnsupported,
        DtlsFailure::CertificateMissing,
        DtlsFailure::FingerprintMismatch,
        DtlsFailure::NothingInCommon,
        DtlsFailure::NoSrtpProfile,
        DtlsFailure::NotAuthentic,
        DtlsFailure::AlertReceived,
        DtlsFailure::Failed,
    ];

    /// The code of logs and metrics.
    pub fn code(self) -> &'static str {
        match self {
            DtlsFailure::CertificateUnsupported => "dtls_certificate_unsupported",
            DtlsFailure::CertificateMissing => "dtls_certificate_missing",
            DtlsFailure::FingerprintMismatch => "dtls_fingerprint_mismatch",
            DtlsFailure::NothingInCommon => "dtls_nothing_in_common",
            DtlsFailure::NoSrtpProfile => "dtls_no_srtp_profile",
            DtlsFailure::NotAuthentic => "dtls_not_authentic",
            DtlsFailure::AlertReceived => "dtls_alert_received",
            DtlsFailure::Failed => "dtls_failed",
        }
    }

    /// The description of the alert that the peer is to get (RFC 5246 §7.2.2); none answers an alert.
    pub(super) fn alert(self) -> Option<u8> {
        const HANDSHAKE_FAILURE: u8 = 40;
        match self {
            DtlsFailure::CertificateUnsupported => Some(43),
            DtlsFailure::FingerprintMismatch => Some(42),
            DtlsFailure::NotAuthentic => Some(51),
            DtlsFailure::CertificateMissing
            | DtlsFailure::NothingInCommon
            | DtlsFailure::NoSrtpProfile
            | DtlsFailure::Failed => Some(HANDSHAKE_FAILURE),
            DtlsFailure::AlertReceived => None,
        }
    }

    /// What dimpl found wrong; none for what DTLS goes on after.
    pub(super) fn of(error: &DtlsImplError) -> Option<DtlsFailure> {
        use dimpl::{CertificateError, CryptoError, SecurityError};
        Some(match error {
            // Full queues drain, and a second ClientHello is ignored: DTLS goes on.
            DtlsImplError::ReceiveQueueFull
            | DtlsImplError::TransmitQueueFull
            | DtlsImplError::RenegotiationAttempt
            | DtlsImplError::TooManyClientHelloFragments
            | DtlsImplError::ConnectionClosed => return None,
            DtlsImplError::CertificateError(
                CertificateError::NoClientCertificateReceived | CertificateError::NoServerCertificateReceived,
            ) => DtlsFailure::CertificateMissing,
            DtlsImplError::CertificateError(_)
            | DtlsImplError::CryptoError(
                CryptoError::UnsupportedSignatureAlgorithm(_)
                | CryptoError::SignatureAlgorithmMismatch { .. }
                | CryptoError::UnsupportedSignaturePair { .. }
                | CryptoError::UnsupportedSignatureVerification { .. }
                | CryptoError::UnsupportedPublicKeyAlgorithm
                | CryptoError::UnsupportedEcCurve
                | CryptoError::CertificateParseFailed
                | CryptoError::MissingEcCurveParameter
                | CryptoError::InvalidEcCurveParameter
                | CryptoError::InvalidSubjectPublicKey,
            ) => DtlsFailure::CertificateUnsupported,
            DtlsImplError::SecurityError(SecurityError::FatalAlert { .. }) => DtlsFailure::AlertReceived,
            DtlsImplError::SecurityError(
                SecurityError::ServerFinishedVerificationFailed | SecurityError::ClientFinishedVerificationFailed,
            )
            | DtlsImplError::CryptoError(CryptoError::SignatureVerificationFailed { .. }) => DtlsFailure::NotAuthentic,
            DtlsImplError::SecurityError(_)
            | DtlsImplError::CryptoError(
                CryptoError::SignatureAlgorithmNotOfferedByClient
                | CryptoError::NoSupportedKeyExchangeGroups
                | CryptoError::UnsupportedEcdheNamedGroup(_)
                | CryptoError::UnsupportedCipherSuite(_),
            ) => DtlsFailure::NothingInCommon,
            // Another library's enum; whatever else it names ends the handshake.
            _ => DtlsFailure::Failed,
        })
    }
}

impl std::fmt::Display for DtlsFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}
