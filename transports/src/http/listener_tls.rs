//! The TLS of a door: the certificate it shows, and whose certificates it takes.
//!
//! Everything is read from files and can be read again. A connection keeps what it was opened with.

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

/// How long a client may take until it is known who it is, its wait for a turn included.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// Handshakes under way at a time: a few milliseconds of work each. The next ones wait for their turn.
const MAX_HANDSHAKES: usize = 512;

/// What a client names that speaks HTTP/2 (RFC 9113, section 3.3).
const HTTP2: &[u8] = b"h2";

/// Longest file looked at: a bundle of all public authorities has a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The door's certificate and what leads from it to an authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Whose certificates clients may show.
    pub client_auth: Option<ClientAuth>,
}

/// Whose certificates clients may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The authorities that sign them.
    pub ca: PathBuf,
    /// Whether a client without one is turned away.
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

/// Why the files are of no use. Nothing of a key is repeated.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// It holds something else.
    #[error("{0} holds no {1} in PEM")]
    WrongContents(PathBuf, &'static str),
    /// The certificate and the key do not go together, or are of a kind that is not known.
    #[error("{0} and its key cannot be used together: {1}")]
    KeyMismatch(PathBuf, rustls::Error),
    /// The authorities are none.
    #[error("{0} holds no certificate of an authority that can be used: {1}")]
    InvalidAuthority(PathBuf, String),
}

/// What was read last, and what became of it.
struct LoadedTls {
    texts: Vec<Vec<u8>>,
    config: Arc<ServerConfig>,
}

/// The TLS of a door; clones share it.
#[derive(Clone)]
pub struct ListenerTls {
    files: Arc<TlsFiles>,
    loaded: Arc<Snapshot<LoadedTls>>,
    handshake_permits: Arc<Semaphore>,
}

/// A connection after its handshake.
pub(super) struct SecuredStream {
    pub(super) stream: TlsStream<TcpStream>,
    /// What the client showed.
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
    pub fn open(papers: TlsFiles) -> Result<Self, TlsError> {
        let texts = read_files(&papers)?;
        let config = build_config(&papers, &texts)?;
        Ok(Self {
            files: Arc::new(papers),
            loaded: Arc::new(Snapshot::new(LoadedTls { texts, config })),
            handshake_permits: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
        })
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Reads the files again, for the connections to come; true when they say something else.
    ///
    /// # Errors
    /// [`TlsError`]; then everything stays as it was.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let texts = read_files(&self.files)?;
        if texts == self.loaded.load().texts {
            return Ok(false);
        }
        let config = build_config(&self.files, &texts)?;
        self.loaded.store(Arc::new(LoadedTls { texts, config }));
        Ok(true)
    }

    /// Finds out who is there; `None` when that failed. Takes at most [`HANDSHAKE`].
    pub(super) async fn accept(&self, stream: TcpStream) -> Option<SecuredStream> {
        let shaken = async {
            let _turn = self.handshake_permits.acquire().await.ok()?;
            let acceptor = TlsAcceptor::from(self.loaded.load().config.clone());
            let shaken = acceptor.accept(stream).await;
            shaken
                .inspect_err(|error| tracing::debug!(%error, "a client was not let in"))
                .ok()
        };
        let stream = tokio::time::timeout(HANDSHAKE, shaken).await.ok()??;
        let (_, session) = stream.get_ref();
        let shown = session.peer_certificates();
        let certificate = match shown.and_then(<[_]>::first) {
            // One that was shown and cannot be read is not as if none had been shown.
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

fn read_files(papers: &TlsFiles) -> Result<Vec<Vec<u8>>, TlsError> {
    papers
        .all_files()
        .iter()
        .map(|file| read_file(file))
        .collect()
}

fn read_file(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unread = |error| TlsError::Unreadable(file.to_owned(), error);
    let found = std::fs::metadata(file).map_err(unread)?;
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        return Err(unread(std::io::Error::other(format!(
            "it is no file of at most {FILE_BYTES_MAX} bytes"
        ))));
    }
    std::fs::read(file).map_err(unread)
}

fn build_config(papers: &TlsFiles, texts: &[Vec<u8>]) -> Result<Arc<ServerConfig>, TlsError> {
    let [cert, key, ca @ ..] = texts else {
        unreachable!("a certificate and a key are always read");
    };
    let chain = parse_certificates(&papers.cert, cert)?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_: pem::Error| TlsError::WrongContents(papers.key.clone(), "private key"))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions");
    let builder = match (&papers.client_auth, ca.first()) {
        (Some(clients), Some(ca)) => builder.with_client_cert_verifier(build_verifier(
            clients,
            parse_certificates(&clients.ca, ca)?,
        )?),
        (Some(_) | None, _) => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::KeyMismatch(papers.cert.clone(), error))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    if papers.client_auth.is_some() {
        // A resumed session would bring a certificate that nobody judges again.
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
