//! The TLS of a listener: its certificate, and the client certificates it accepts.
//!
//! Everything is read from files and can be reloaded. A connection keeps the settings it was opened with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mgp_sync::Snapshot;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::Certificate;

/// The time limit of a handshake, its time in the queue included.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// Concurrent handshakes: a few milliseconds of work each. Further ones are queued.
const MAX_HANDSHAKES: usize = 512;

/// The ALPN id of HTTP/2 (RFC 9113, section 3.3).
const HTTP2: &[u8] = b"h2";

/// Longest file that is read: four times a bundle of all public authorities.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The listener's certificate and its chain to an authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The client certificates it accepts.
    pub client_auth: Option<ClientAuth>,
}

/// The accepted client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The authorities that sign them.
    pub ca: PathBuf,
    /// Whether a client without a certificate is rejected.
    pub required: bool,
}

impl TlsFiles {
    /// All files.
    #[must_use]
    pub fn all_files(&self) -> Vec<PathBuf> {
        let ca = self.client_auth.iter().map(|clients| &clients.ca);
        [&self.cert, &self.key]
            .into_iter()
            .chain(ca)
            .cloned()
            .collect()
    }
}

/// Why the files cannot be used. Nothing of a key is repeated.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// It has other contents.
    #[error("{0} holds no {1} in PEM")]
    WrongContents(PathBuf, &'static str),
    /// The certificate and the key do not match, or are of an unknown kind.
    #[error("{0} and its key cannot be used together: {1}")]
    KeyMismatch(PathBuf, rustls::Error),
    /// The authorities cannot be used.
    #[error("{0} holds no certificate of an authority that can be used: {1}")]
    InvalidAuthority(PathBuf, String),
}

/// The contents of the files, and the settings made from them.
struct LoadedTls {
    texts: Vec<Vec<u8>>,
    config: Arc<ServerConfig>,
}

/// The TLS of a listener; clones share it.
#[derive(Clone)]
pub struct ListenerTls {
    files: Arc<TlsFiles>,
    loaded: Arc<Snapshot<LoadedTls>>,
    handshake_permits: Arc<Semaphore>,
}

/// A connection after its handshake.
pub(super) struct SecuredStream {
    pub(super) stream: TlsStream<TcpStream>,
    /// The client's certificate.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// The client chose HTTP/2.
    pub(super) http2: bool,
}

impl std::fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DoorTls").field(&self.files).finish()
    }
}

impl ListenerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let texts = read_files(&files)?;
        let config = build_config(&files, &texts)?;
        Ok(Self {
            files: Arc::new(files),
            loaded: Arc::new(Snapshot::new(LoadedTls { texts, config })),
            handshake_permits: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
        })
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Reloads the files for future connections; true when they have changed.
    ///
    /// # Errors
    /// [`TlsError`]; the settings are unchanged then.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let texts = read_files(&self.files)?;
        if texts == self.loaded.load().texts {
            return Ok(false);
        }
        let config = build_config(&self.files, &texts)?;
        self.loaded.store(Arc::new(LoadedTls { texts, config }));
        Ok(true)
    }

    /// Performs the handshake; `None` when it failed. Takes at most [`HANDSHAKE`].
    pub(super) async fn accept(&self, stream: TcpStream) -> Option<SecuredStream> {
        let handshake = async {
            let _permit = self.handshake_permits.acquire().await.ok()?;
            let acceptor = TlsAcceptor::from(self.loaded.load().config.clone());
            let handshake = acceptor.accept(stream).await;
            handshake
                .inspect_err(|error| tracing::debug!(%error, "a TLS handshake failed"))
                .ok()
        };
        let stream = tokio::time::timeout(HANDSHAKE, handshake).await.ok()??;
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates();
        let certificate = match certificates.and_then(<[_]>::first) {
            // A malformed certificate does not count as none.
            Some(first) => Some(Arc::new(Certificate::parse(first)?)),
            None => None,
        };
        let http2 = session.alpn_protocol() == Some(HTTP2);
        Some(SecuredStream {
            stream,
            certificate,
            http2,
        })
    }
}

fn read_files(files: &TlsFiles) -> Result<Vec<Vec<u8>>, TlsError> {
    files
        .all_files()
        .iter()
        .map(|file| read_file(file))
        .collect()
}

fn read_file(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unread = |error| TlsError::Unreadable(file.to_owned(), error);
    let metadata = std::fs::metadata(file).map_err(unread)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(unread(std::io::Error::other(format!(
            "it is no file of at most {FILE_BYTES_MAX} bytes"
        ))));
    }
    std::fs::read(file).map_err(unread)
}

fn build_config(files: &TlsFiles, texts: &[Vec<u8>]) -> Result<Arc<ServerConfig>, TlsError> {
    let [cert, key, ca @ ..] = texts else {
        unreachable!("a certificate and a key are always read");
    };
    let chain = parse_certificates(&files.cert, cert)?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_: pem::Error| TlsError::WrongContents(files.key.clone(), "private key"))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions");
    let builder = match (&files.client_auth, ca.first()) {
        (Some(clients), Some(ca)) => builder.with_client_cert_verifier(build_verifier(
            clients,
            parse_certificates(&clients.ca, ca)?,
        )?),
        (Some(_) | None, _) => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::KeyMismatch(files.cert.clone(), error))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    if files.client_auth.is_some() {
        // A resumed session would bring a certificate that is not verified again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

fn build_verifier(
    clients: &ClientAuth,
    authorities: Vec<CertificateDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |why: String| TlsError::InvalidAuthority(clients.ca.clone(), why);
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|e| wrong(e.to_string()))?;
    }
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if clients.required {
        builder
    } else {
        builder.allow_unauthenticated()
    };
    builder.build().map_err(|e| wrong(e.to_string()))
}

fn parse_certificates(file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) | Err(_) => Err(TlsError::WrongContents(file.to_owned(), "certificate")),
    }
}
