//! `[http.tls]`: the certificate of the HTTP door, and whose certificates it takes.

use std::path::{Path, PathBuf};

use mgp_transports::http::door_tls::{Clients, TlsFiles};

use super::section::Section;

/// Reads the section; `folder` is the file's, for relative paths. What the files hold is read later.
pub(super) fn read(mut section: Section<'_, '_, '_>, folder: &Path, into: &mut Option<TlsFiles>) {
    let whole = section.whole();
    let [cert, key, client_ca] =
        ["cert", "key", "client_ca"].map(|key| path(&mut section, key, folder));
    let client_auth = section.span("client_auth");
    let mut required = true;
    let ways = [("required", true), ("optional", false)];
    section.choice("client_auth", &ways, &mut required);
    match (cert, key, &client_ca) {
        (Some(cert), Some(key), _) => {
            let clients = client_ca.clone().map(|ca| Clients { ca, required });
            *into = Some(TlsFiles { cert, key, clients });
        }
        (None, None, None) if client_auth.is_none() => {}
        (Some(_) | None, _, _) => {
            let words =
                "[http.tls] wants both: `cert`, the door's certificate, and `key`, its private key";
            section.refuse(whole, words);
        }
    }
    if let (Some(span), None) = (client_auth, client_ca) {
        let words = "`client_auth` in [http.tls] says nothing without `client_ca`: the authority that signs the certificates of clients";
        section.refuse(span, words);
    }
    section.finish();
}

fn path(section: &mut Section<'_, '_, '_>, key: &'static str, folder: &Path) -> Option<PathBuf> {
    let text = section.text(key)?;
    if text.get_ref().is_empty() {
        section.refuse(text.span(), format!("`{key}` in [http.tls] is empty"));
    }
    Some(folder.join(text.get_ref()))
}
