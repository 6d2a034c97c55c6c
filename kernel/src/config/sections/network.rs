//! `[network]`: how servers, authorization servers and registries are reached over HTTP.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use mgp_transports::http::proxy::{
    Outbound, ProxyAddress, ProxyExceptions, ProxyRules, percent_decode,
};
use mgp_transports::http::tls::Tls;

use super::section;
use crate::config::parsing::Section;

/// Disables proxies, whatever the variables say.
const NO_PROXY: &str = "none";

section! {
    /// `[network]`. Each key has precedence over the corresponding variables.
    NetworkConfig {
        /// A proxy, or `none`.
        proxy: Option<Proxy> = None, read_with(read_proxy);
        /// Hosts that are reached directly.
        no_proxy: Option<Vec<String>> = None, read_with(read_no_proxy);
        /// Certificate authorities besides those of the machine.
        ca_file: Option<PathBuf> = None, path("ca_file");
    }
}

/// A proxy as written, with its secrets resolved: `Debug` shows none.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy(String);

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&ProxyAddress::parse(&self.0), f)
    }
}

fn read_proxy(section: &mut Section<'_, '_, '_>, into: &mut Option<Proxy>) {
    let Some(text) = section.text("proxy") else {
        return;
    };
    let value = section.resolve_secret("proxy", &text).trim().to_owned();
    // The placeholder of a variable, used when only the shape of a file is checked, is no address.
    let is_literal = value == *text.get_ref() && value != NO_PROXY;
    match ProxyAddress::parse(&value) {
        Err(bad) if is_literal => section.reject_key(text.span(), "proxy", &format!(": {bad}")),
        Ok(_) | Err(_) => {
            login_parts(&value)
                .into_iter()
                .for_each(|part| section.mask(part));
            *into = Some(Proxy(value));
        }
    }
}

fn read_no_proxy(section: &mut Section<'_, '_, '_>, into: &mut Option<Vec<String>>) {
    let Some(entries) = section.texts("no_proxy") else {
        return;
    };
    let mut valid = Vec::new();
    for entry in entries {
        let read = ProxyExceptions::from_entries(std::iter::once(*entry.get_ref()));
        if read.invalid.is_empty() {
            valid.push((*entry.get_ref()).to_owned());
        } else {
            let why = " wants names (corp.example), addresses, networks (10.0.0.0/8), each with a :PORT or without, or \"*\"";
            section.reject_key(entry.span(), "no_proxy", why);
        }
    }
    *into = Some(valid);
}

/// What is masked in logs: the address with its login, and the password alone.
fn login_parts(proxy: &str) -> Vec<String> {
    let Some((before, _)) = proxy.rsplit_once('@') else {
        return Vec::new();
    };
    let pair = before.rsplit_once("//").map_or(before, |(_, pair)| pair);
    let password = pair.split_once(':').map_or(pair, |(_, password)| password);
    let decoded = String::from_utf8_lossy(&percent_decode(password)).into_owned();
    vec![
        proxy.to_owned(),
        pair.to_owned(),
        password.to_owned(),
        decoded,
    ]
}

impl NetworkConfig {
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
        if let Some(Proxy(text)) = &self.proxy {
            let proxy = (text != NO_PROXY).then(|| ProxyAddress::parse(text));
            rules.http.clone_from(&proxy);
            rules.https = proxy;
        }
        if let Some(entries) = &self.no_proxy {
            rules.exceptions = ProxyExceptions::from_entries(entries.iter().map(String::as_str));
        }
        rules
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
            proxy: Some(Proxy("http://u:p%40ss@key.test:2".into())),
            ..plain.clone()
        };
        assert_eq!(way(&keyed, "http://a.test/"), "http://***@key.test:2");
        assert_eq!(way(&keyed, "https://direct.test/"), "-");
        assert!(login_parts("http://u:p%40ss@key.test:2").contains(&"p@ss".to_owned()));
        assert!(!format!("{keyed:?}").contains("ss@key"), "{keyed:?}");
        let none = NetworkConfig {
            proxy: Some(Proxy(NO_PROXY.into())),
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
