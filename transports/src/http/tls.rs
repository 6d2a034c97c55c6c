//! Whom we trust when an upstream server is reached by https.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::crypto::ring;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::sync::OnceCell;

/// The certificate authorities to trust; clones share them.
///
/// The crypto provider is part of it: nothing has to be installed for the process.
#[derive(Clone, Debug, Default)]
pub struct Tls(Arc<OnceCell<Arc<ClientConfig>>>);

/// The machine has no certificate authorities to trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine trusts no certificate authority (install ca-certificates): {0}")]
pub struct NoRoots(String);

impl Tls {
    /// The authorities this machine trusts, read from disk when first needed.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// These authorities and no others.
    #[must_use]
    pub fn trusting(roots: RootCertStore) -> Self {
        let config = builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self(Arc::new(OnceCell::from(Arc::new(config))))
    }

    /// The settings of a connection. A machine without roots is asked again the next time.
    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, NoRoots> {
        let read = || async {
            let config = tokio::task::spawn_blocking(|| builder().with_native_roots()).await;
            let config = config.map_err(|e| NoRoots(e.to_string()))?;
            let config = config.map_err(|e| NoRoots(e.to_string()))?;
            Ok(Arc::new(config.with_no_client_auth()))
        };
        self.0.get_or_try_init(read).await.cloned()
    }
}

fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions")
}
