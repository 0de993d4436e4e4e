//! The certificate and the key that HTTP is served with, and their renewal while the server runs.

use crate::config::Http;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// How often the files are looked at. Whoever renews certificates does so days ahead.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A certificate file larger than any chain is not read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a certificate and its key cannot be used: which file, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file is not there, or not for us.
    #[error("{setting} = {path:?} cannot be read: {error}")]
    Unreadable {
        /// Name of the setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's word.
        error: io::Error,
    },
    /// The file has nothing of the kind.
    #[error("{setting} = {path:?} holds no {what} in PEM form (-----BEGIN …-----){hint}")]
    NotPem {
        /// Name of the setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What may have happened.
        hint: &'static str,
    },
    /// The certificate cannot be read, or its key is of a kind that is not supported.
    #[error("{setting} = {path:?} cannot be used: {error}")]
    Unusable {
        /// Name of the setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// They do not belong together.
    #[error(
        "the key in http.tls_key = {key:?} is not the one of the first certificate in http.tls_cert = {cert:?}; \
             give both files of one renewal, the server's own certificate first and its chain after it"
    )]
    Mismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// Where certificate and key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    cert: PathBuf,
    key: PathBuf,
}

/// When each file was written, and its length; `None` where it cannot be seen.
type Stamp = [Option<(SystemTime, u64)>; 2];

/// Certificate and key as they were read, and until when they hold.
#[derive(Debug)]
pub struct Loaded {
    key: Arc<CertifiedKey>,
    /// When the first certificate of the chain ends.
    pub not_after: SystemTime,
}

impl Loaded {
    /// Whether it has ended.
    pub fn expired(&self) -> bool {
        self.expires_within(Duration::ZERO)
    }

    /// Whether it ends so soon.
    pub fn expires_within(&self, within: Duration) -> bool {
        self.not_after <= SystemTime::now() + within
    }
}

impl Files {
    /// The files of the configuration; `None` where HTTP is served in the clear. [`crate::config::Config::check`]
    /// sees to it that there are both or neither.
    pub fn of(http: &Http) -> Option<Self> {
        Some(Self { cert: http.tls_cert.clone()?, key: http.tls_key.clone()? })
    }

    /// Reads both.
    ///
    /// # Errors
    /// [`TlsError`]
    pub fn load(&self) -> Result<Loaded, TlsError> {
        const CERT: &str = "http.tls_cert";
        const KEY: &str = "http.tls_key";
        let chain_pem = read(CERT, &self.cert)?;
        let key_pem = read(KEY, &self.key)?;
        let unusable =
            |setting, path: &Path, error: String| TlsError::Unusable { setting, path: path.to_owned(), error };
        let mut chain: Vec<CertificateDer<'static>> = Vec::new();
        let mut not_after = None;
        for der in CertificateDer::pem_slice_iter(&chain_pem) {
            // A file that is half written: serving the half would fail with clients, not here.
            let broken = |error: &dyn fmt::Display| {
                unusable(CERT, &self.cert, format!("certificate {} of it is broken: {error}", chain.len() + 1))
            };
            let der = der.map_err(|error| broken(&error))?;
            let certificate = Certificate::from_der(&der).map_err(|error| broken(&error))?;
            let ends = UNIX_EPOCH + certificate.tbs_certificate().validity().not_after.to_unix_duration();
            not_after = not_after.or(Some(ends));
            chain.push(der);
        }
        let Some(not_after) = not_after else {
            let hint = if PrivateKeyDer::from_pem_slice(&chain_pem).is_ok() { "; it holds a key" } else { "" };
            return Err(TlsError::NotPem { setting: CERT, path: self.cert.clone(), what: "certificate", hint });
        };
        let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| {
            let hint = match error {
                _ if key_pem.windows(9).any(|w| w == b"ENCRYPTED") => "; it is encrypted: give it without a passphrase",
                pem::Error::NoItemsFound if CertificateDer::from_pem_slice(&key_pem).is_ok() => {
                    "; it holds a certificate"
                }
                _ => "",
            };
            TlsError::NotPem { setting: KEY, path: self.key.clone(), what: "private key", hint }
        })?;
        let key = match CertifiedKey::from_der(chain, key, &provider()) {
            Ok(key) => Arc::new(key),
            Err(rustls::Error::InconsistentKeys(_)) => {
                return Err(TlsError::Mismatch { cert: self.cert.clone(), key: self.key.clone() });
            }
            Err(error) => return Err(unusable(KEY, &self.key, error.to_string())),
        };
        Ok(Loaded { key, not_after })
    }

    /// Changes when one of the files is written or replaced; also behind a symbolic link.
    fn stamp(&self) -> Stamp {
        [&self.cert, &self.key].map(|path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        })
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || match std::fs::metadata(path)?.len() {
        len if len > FILE_BYTES_MAX => {
            Err(io::Error::other(format!("it has {len} bytes, at most {FILE_BYTES_MAX} are read")))
        }
        _ => std::fs::read(path),
    };
    read().map_err(|error| TlsError::Unreadable { setting, path: path.to_owned(), error })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// What is known of the certificate in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsCounts {
    /// When it ends, in seconds since 1970.
    pub not_after_s: u64,
    /// How often the files were read again and taken into use.
    pub reloads: u64,
    /// How often they were read again and could not be used.
    pub failures: u64,
}

/// What new connections are served with; renewed in place.
#[derive(Debug)]
pub struct Renewed {
    files: Files,
    current: RwLock<Arc<CertifiedKey>>,
    /// Of the files as they were read last, whatever came of it.
    read: Mutex<Stamp>,
    not_after_s: AtomicU64,
    reloads: AtomicU64,
    failures: AtomicU64,
}

impl Renewed {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`TlsError`]
    pub fn new(files: Files) -> Result<Arc<Self>, TlsError> {
        let read = Mutex::new(files.stamp());
        let loaded = files.load()?;
        warn_if_expired(&loaded);
        Ok(Arc::new(Self {
            files,
            read,
            not_after_s: AtomicU64::new(seconds(loaded.not_after)),
            current: RwLock::new(loaded.key),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }))
    }

    /// TLS 1.2 and 1.3 for HTTP/1.1.
    ///
    /// # Errors
    /// The provider knows neither version: never with ours.
    pub fn server_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let resolver: Arc<dyn ResolvesServerCert> = self.clone();
        Ok(builder.with_no_client_auth().with_cert_resolver(resolver))
    }

    /// Reads the files again. New connections get what they hold; connections that are open go on. Files that cannot
    /// be used change nothing, and the log says why.
    pub fn reload(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = self.files.stamp();
        match self.files.load() {
            Ok(loaded) => {
                warn_if_expired(&loaded);
                self.not_after_s.store(seconds(loaded.not_after), Relaxed);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded.key;
                self.reloads.fetch_add(1, Relaxed);
                tracing::info!(cert = %self.files.cert.display(), "the TLS certificate was read again");
            }
            Err(error) => {
                self.failures.fetch_add(1, Relaxed);
                tracing::error!(%error, "the TLS certificate was not renewed; the one before stays in use");
            }
        }
    }

    /// Reloads whenever a file has changed and then stood still for a look: a renewal writes two files, one after the
    /// other. Never ends.
    pub async fn watch(self: Arc<Self>) {
        let mut seen = self.files.stamp();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.files.stamp();
            let read = *self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if now != read && now == seen {
                self.reload();
            }
            seen = now;
        }
    }

    /// For `/metrics`.
    pub fn counts(&self) -> TlsCounts {
        TlsCounts {
            not_after_s: self.not_after_s.load(Relaxed),
            reloads: self.reloads.load(Relaxed),
            failures: self.failures.load(Relaxed),
        }
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn warn_if_expired(loaded: &Loaded) {
    if loaded.expired() {
        tracing::warn!(
            "the TLS certificate has expired: browsers will refuse it. Renew it; the files are read again by themselves"
        );
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
