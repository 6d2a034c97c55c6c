//! `[network]`: how servers, authorization servers and registries are reached over HTTP.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mgp_engine::env::resolve_secret;
use mgp_transports::http::proxy::{
    Outbound, ProxyAddress, ProxyExceptions, ProxyRules, percent_decode,
};
use mgp_transports::http::tls::Tls;

use crate::config::parsing::{Env, SecretsConfig, Section};

/// Disables proxies, whatever the variables say.
const NO_PROXY: &str = "none";

/// `[network]`. Each key has precedence over the corresponding variables.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct NetworkConfig {
    /// As written, with its secrets resolved.
    proxy: Option<String>,
    no_proxy: Option<Vec<String>>,
    /// Certificate authorities besides those of the machine.
    pub(crate) ca_file: Option<PathBuf>,
}

impl fmt::Debug for NetworkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkConfig")
            .field("proxy", &self.proxy.as_deref().map(ProxyAddress::parse))
            .field("no_proxy", &self.no_proxy)
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

impl NetworkConfig {
    /// Relative paths start at `folder`, which is the file's.
    pub(crate) fn read(
        &mut self,
        mut section: Section<'_, '_, '_>,
        folder: &Path,
        env: &Env<'_>,
        secrets: &SecretsConfig,
    ) {
        if let Some(text) = section.text("proxy") {
            let read = |path: &str| env.file(&folder.join(path));
            let variable = |name: &str| env.variable(name);
            let kept = |name: &str| env.secret(name, secrets);
            match resolve_secret(text.get_ref(), "proxy", variable, read, kept) {
                Ok(value) => {
                    let value = value.trim().to_owned();
                    // The placeholder of a variable, used when only the shape of a file is checked, is no address.
                    let written = value == *text.get_ref() && value != NO_PROXY;
                    match ProxyAddress::parse(&value) {
                        Err(bad) if written => {
                            section.reject(text.span(), format!("`proxy` in [network]: {bad}"));
                        }
                        Ok(_) | Err(_) => self.proxy = Some(value),
                    }
                }
                Err(why) => section.reject(text.span(), format!("[network]: {why}")),
            }
        }
        if let Some(entries) = section.texts("no_proxy") {
            let mut kept = Vec::new();
            for entry in entries {
                let read = ProxyExceptions::from_entries(std::iter::once(*entry.get_ref()));
                if read.invalid.is_empty() {
                    kept.push((*entry.get_ref()).to_owned())
                } else {
                    section.reject(
                        entry.span(),
                        "`no_proxy` in [network] wants names (corp.example), addresses, networks (10.0.0.0/8), each with a :PORT or without, or \"*\"",
                    )
                }
            }
            self.no_proxy = Some(kept);
        }
        if let Some(text) = section.text("ca_file") {
            if text.get_ref().is_empty() {
                section.reject(text.span(), "`ca_file` in [network] is empty")
            } else {
                self.ca_file = Some(folder.join(text.get_ref()))
            }
        }
        section.finish();
    }

    /// Whether a key, not the variables, sets the proxy.
    #[must_use]
    pub(crate) fn has_proxy_setting(&self) -> bool {
        self.proxy.is_some()
    }

    /// The settings of outgoing HTTP, with the variables as defaults.
    #[must_use]
    pub(crate) fn outbound(&self) -> Outbound {
        Outbound {
            tls: Tls::system_with_file(self.ca_file.clone()),
            proxies: Arc::new(self.proxy_rules(|name| std::env::var(name).ok())),
        }
    }

    /// The proxies with these variables.
    fn proxy_rules(&self, variable: impl Fn(&str) -> Option<String>) -> ProxyRules {
        let mut rules = ProxyRules::from_variables(variable);
        if let Some(text) = &self.proxy {
            let proxy = (text != NO_PROXY).then(|| ProxyAddress::parse(text));
            rules.http.clone_from(&proxy);
            rules.https = proxy;
        }
        if let Some(entries) = &self.no_proxy {
            rules.exceptions = ProxyExceptions::from_entries(entries.iter().map(String::as_str));
        }
        rules
    }

    /// Values to mask in logs: the address with its login, and the password alone.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let Some(text) = &self.proxy else {
            return Vec::new();
        };
        let Some((before, _)) = text.rsplit_once('@') else {
            return Vec::new();
        };
        let pair = before.rsplit_once("//").map_or(before, |(_, pair)| pair);
        let password = pair.split_once(':').map_or(pair, |(_, password)| password);
        let decoded = String::from_utf8_lossy(&percent_decode(password)).into_owned();
        vec![text.clone(), pair.to_owned(), password.to_owned(), decoded]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0058: a key has precedence over its own variables, and over no others.
    #[test]
    fn keys_have_precedence_over_variables() {
        let shell = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://shell.test:1".to_owned()),
            "NO_PROXY" => Some("direct.test".to_owned()),
            _ => None,
        };
        let way = |config: &NetworkConfig, url: &str| {
            let rules = config.proxy_rules(shell);
            let proxy = rules.proxy_for(&url.parse().unwrap()).unwrap().cloned();
            proxy.map_or("-".to_owned(), |proxy| proxy.to_string())
        };
        let plain = NetworkConfig::default();
        assert_eq!(way(&plain, "https://a.test/"), "http://shell.test:1");
        assert_eq!(way(&plain, "http://a.test/"), "-");
        assert_eq!(way(&plain, "https://direct.test/"), "-");
        let keyed = NetworkConfig {
            proxy: Some("http://u:p%40ss@key.test:2".into()),
            ..plain.clone()
        };
        assert_eq!(way(&keyed, "http://a.test/"), "http://***@key.test:2");
        assert_eq!(way(&keyed, "https://direct.test/"), "-");
        assert!(keyed.secrets().contains(&"p@ss".to_owned()));
        assert!(!format!("{keyed:?}").contains("ss@key"), "{keyed:?}");
        let none = NetworkConfig {
            proxy: Some(NO_PROXY.into()),
            ..plain.clone()
        };
        assert_eq!(way(&none, "https://a.test/"), "-");
        let others = NetworkConfig {
            no_proxy: Some(vec!["a.test".into()]),
            ..plain
        };
        assert_eq!(way(&others, "https://a.test/"), "-");
        assert_eq!(way(&others, "https://direct.test/"), "http://shell.test:1");
    }
}
