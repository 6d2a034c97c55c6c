//! The names in a client certificate whose chain was verified.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Most names that are read of one certificate; one with more belongs to no agent.
const MAX_NAMES: usize = 64;

/// The unchanged names in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// URIs among its alternative names.
    pub uris: Vec<String>,
    /// Host names among its alternative names.
    pub hosts: Vec<String>,
    /// Common names of its subject.
    pub common_names: Vec<String>,
    /// The time of its expiry, in milliseconds since 1970.
    pub not_after_ms: u64,
}

impl Certificate {
    /// Reads a certificate; `None` if it is malformed or has too many names.
    pub(super) fn parse(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, read) = X509Certificate::from_der(der).ok()?;
        let mut certificate = Self {
            not_after_ms: end_ms(read.validity().not_after.timestamp()),
            ..Self::default()
        };
        let names = read.subject_alternative_name().ok()?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        if names.len() > MAX_NAMES {
            return None;
        }
        for name in names {
            if let GeneralName::URI(uri) = name {
                certificate.uris.push((*uri).to_owned());
            } else if let GeneralName::DNSName(host) = name {
                certificate.hosts.push((*host).to_owned());
            }
        }
        for name in read.subject().iter_common_name().take(MAX_NAMES) {
            certificate
                .common_names
                .push(name.as_str().ok()?.to_owned());
        }
        Some(certificate)
    }
}

/// A certificate is valid to the end of its last second.
fn end_ms(last_second: i64) -> u64 {
    let seconds = u64::try_from(last_second).map_or(0, |last| last.saturating_add(1));
    seconds.saturating_mul(1000)
}
