//! The trusted authorities for upstream servers with https.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::sync::OnceCell;

/// The trusted certificate authorities; clones share them.
///
/// Includes the crypto provider: nothing has to be installed for the process.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    config: Arc<OnceCell<Arc<ClientConfig>>>,
    /// Authorities besides those of the machine.
    extra_authorities: Option<PathBuf>,
}

/// There are no authorities to verify a certificate with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootsError {
    /// The machine has no trusted certificate authorities.
    #[error(
        "this machine trusts no certificate authority (install ca-certificates, or mend SSL_CERT_FILE where it is set): {0}"
    )]
    Machine(String),
    /// The configured file has none.
    #[error("the certificate authorities in {} cannot be had: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
}

impl Tls {
    /// The authorities that this machine trusts, read from disk when first needed: those of `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR` if these are set, as in OpenSSL, curl and Go.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// The machine's authorities, and those in this PEM file.
    #[must_use]
    pub fn system_with_file(file: Option<PathBuf>) -> Self {
        Self {
            config: Arc::default(),
            extra_authorities: file,
        }
    }

    /// These authorities and no others.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn with_roots(roots: RootCertStore) -> Self {
        let config = builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            config: Arc::new(OnceCell::from(Arc::new(config))),
            extra_authorities: None,
        }
    }

    /// The settings of a connection; with `h2`, ALPN offers only HTTP/2. On a machine without roots, the next call tries
    /// again.
    pub(super) async fn config(&self, h2: bool) -> Result<Arc<ClientConfig>, RootsError> {
        let read = || async {
            let more = self.extra_authorities.clone();
            let roots = tokio::task::spawn_blocking(move || load_roots(more.as_deref())).await;
            let roots = roots.map_err(|e| RootsError::Machine(e.to_string()))??;
            let config = builder().with_root_certificates(roots);
            Ok(Arc::new(config.with_no_client_auth()))
        };
        let config = self.config.get_or_try_init(read).await.cloned()?;
        if !h2 {
            return Ok(config);
        }
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

fn load_roots(more: Option<&Path>) -> Result<RootCertStore, RootsError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = more {
        add_roots(path, &mut roots).map_err(|why| RootsError::File {
            path: path.to_owned(),
            why,
        })?;
    }
    if roots.is_empty() {
        let why = native.errors.iter().map(ToString::to_string);
        let why = why.collect::<Vec<_>>().join("; ");
        Err(RootsError::Machine(why))
    } else {
        Ok(roots)
    }
}

fn add_roots(path: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    let found = CertificateDer::pem_file_iter(path).map_err(|e| e.to_string())?;
    let found: Result<Vec<_>, _> = found.collect();
    match roots.add_parsable_certificates(found.map_err(|e| e.to_string())?) {
        (0, _) => Err("no certificate in PEM is in it".to_owned()),
        (_, 0) => Ok(()),
        (_, bad) => Err(format!("{bad} of its certificates are none")),
    }
}

/// The defect of a file of certificate authorities, as text.
#[must_use]
pub fn validate_authorities(file: &Path) -> Option<String> {
    add_roots(file, &mut RootCertStore::empty()).err()
}

fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions")
}
