//! `[oauth]`: the issuer whose tokens are accepted over HTTP.

use std::path::{Path, PathBuf};

use mgp_engine::doors::bearer::Algorithm;
use mgp_transports::http::is_safe_url;

use crate::config::parsing::Section;

/// `[oauth]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OAuthConfig {
    /// The issuer of the tokens.
    pub(crate) issuer: String,
    /// The URL of `/mcp` as clients know it; `None` to derive it from the listen address.
    pub(crate) resource: Option<String>,
    /// Further accepted audiences.
    pub(crate) audience: Vec<String>,
    /// The URL of the issuer's keys; `None` to use its metadata.
    pub(crate) jwks_url: Option<String>,
    /// A file with the issuer's keys; has precedence over `jwks_url`.
    pub(crate) jwks_file: Option<PathBuf>,
    /// The claim that names the agent.
    pub(crate) agent_claim: String,
    /// Scopes a token must have.
    pub(crate) scopes: Vec<String>,
    /// The accepted algorithms.
    pub(crate) algorithms: Vec<Algorithm>,
    /// Whether the kernel's own tokens are accepted, too.
    pub(crate) accept_tokens: bool,
}

impl Default for OAuthConfig {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            resource: None,
            audience: Vec::new(),
            jwks_url: None,
            jwks_file: None,
            agent_claim: "sub".into(),
            scopes: Vec::new(),
            algorithms: vec![
                Algorithm::Rs256,
                Algorithm::Ps256,
                Algorithm::Es256,
                Algorithm::EdDsa,
            ],
            accept_tokens: true,
        }
    }
}

impl OAuthConfig {
    /// `wanted` is true if `[http] auth` requires these tokens; relative paths start at `folder`, which is the file's.
    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>, wanted: bool, folder: &Path) {
        let whole = section.start_span();
        match read_url(&mut section, "issuer") {
            Some(issuer) => self.issuer = issuer,
            None if wanted && self.issuer.is_empty() => {
                let words = "`auth` in [http] is \"oauth\", but [oauth] names no `issuer`";
                section.reject(whole, words);
            }
            None => {}
        }
        for (key, into) in [
            ("resource", &mut self.resource),
            ("jwks_url", &mut self.jwks_url),
        ] {
            if let Some(url) = read_url(&mut section, key) {
                *into = Some(url.trim_end_matches('/').to_owned());
            }
        }
        if let Some(text) = section.text("jwks_file") {
            self.jwks_file = Some(folder.join(text.get_ref()));
        }
        section.strings("audience", &mut self.audience);
        if let Some(text) = section.text("agent_claim") {
            self.agent_claim = (*text.get_ref()).to_owned();
        }
        section.strings("scopes", &mut self.scopes);
        if let Some(names) = section.texts("algorithms") {
            self.algorithms.clear();
            for name in names {
                match Algorithm::parse(name.get_ref()) {
                    Some(algorithm) => self.algorithms.push(algorithm),
                    None => {
                        let known: Vec<_> = Algorithm::ALL.iter().map(|(name, _)| *name).collect();
                        let words = format!(
                            "`algorithms` in [oauth] are some of {}: those where only the issuer can sign",
                            known.join(", ")
                        );
                        section.reject(name.span(), words);
                    }
                }
            }
        }
        section.flag("accept_tokens", &mut self.accept_tokens);
        section.finish();
    }
}

fn read_url(section: &mut Section<'_, '_, '_>, key: &'static str) -> Option<String> {
    let text = section.text(key)?;
    if !is_safe_url(text.get_ref()) {
        let words = format!("`{key}` in [oauth] wants https://, or http:// on this machine");
        section.reject(text.span(), words);
    }
    Some((*text.get_ref()).to_owned())
}
