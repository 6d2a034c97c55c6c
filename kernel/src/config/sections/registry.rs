//! `[registry]`: the registry of `mgp servers search`.

use mgp_transports::http::is_safe_url;

use crate::config::parsing::Section;

/// `[registry]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegistryConfig {
    /// The URL without the version of the API.
    pub(crate) url: String,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            url: "https://registry.modelcontextprotocol.io".to_owned(),
        }
    }
}

impl RegistryConfig {
    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>) {
        if let Some(url) = section.text("url") {
            let plain = url.get_ref().trim_end_matches('/');
            if is_safe_url(plain) {
                self.url = plain.to_owned()
            } else {
                section.reject(
                    url.span(),
                    "`url` in [registry] wants https://, or http:// and this machine: what comes from there is run",
                )
            }
        }
        section.finish();
    }
}
