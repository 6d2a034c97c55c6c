//! The addresses that are reached without a proxy (`NO_PROXY`).

use std::net::IpAddr;

use super::{normalize_host, normalize_ip};

/// Addresses that are reached directly. Its length is that of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyExceptions {
    match_all: bool,
    named: Vec<NamedException>,
    /// Malformed entries, unchanged.
    pub invalid: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedException {
    target: ExceptionTarget,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExceptionTarget {
    /// A name and all subdomains.
    Name(String),
    /// The addresses that begin with these bits.
    Network(IpAddr, u32),
}

impl ProxyExceptions {
    /// Entries between commas or spaces: `*` for everything; a name, with or without a dot before it, for itself and all
    /// subdomains; an address; a network (`10.0.0.0/8`). A name or an address may have a port after a colon, and applies to
    /// that port alone.
    ///
    /// Only the host of a URL is compared: a name is not resolved to check whether its address is in a network.
    #[must_use]
    pub(crate) fn parse_lenient(text: &str) -> Self {
        let entries = text.split(|c: char| c == ',' || c.is_whitespace());
        Self::from_entries(entries.filter(|entry| !entry.is_empty()))
    }

    /// Parses a list of entries.
    #[must_use]
    pub fn from_entries<'t>(entries: impl Iterator<Item = &'t str>) -> Self {
        let mut exceptions = Self::default();
        for entry in entries {
            match (entry, parse_exception(entry)) {
                ("*", _) => exceptions.match_all = true,
                (_, Some(named)) => exceptions.named.push(named),
                (_, None) => exceptions.invalid.push(entry.to_owned()),
            }
        }
        exceptions
    }

    /// Whether a host, without brackets, and a port are exceptions.
    pub(super) fn contains(&self, host: &str, port: u16) -> bool {
        let ip = host.parse::<IpAddr>().ok().map(normalize_ip);
        let matches = |exception: &NamedException| {
            let is_match = match (&exception.target, ip) {
                (ExceptionTarget::Name(name), None) => is_subdomain(host, name),
                (ExceptionTarget::Network(net, bits), Some(ip)) => {
                    has_common_prefix(*net, ip, *bits)
                }
                (ExceptionTarget::Name(_), Some(_)) | (ExceptionTarget::Network(..), None) => false,
            };
            is_match && exception.port.is_none_or(|only| only == port)
        };
        self.match_all || self.named.iter().any(matches)
    }
}

fn parse_exception(entry: &str) -> Option<NamedException> {
    let whole = |target| Some(NamedException { target, port: None });
    if let Some((net, bits)) = entry.split_once('/') {
        let net: IpAddr = net.parse().ok()?;
        let bits: u32 = bits.parse().ok()?;
        return if bits <= address_bits(net) {
            whole(ExceptionTarget::Network(net, bits))
        } else {
            None
        };
    }
    // An IPv6 address contains colons.
    if let Ok(ip) = normalize_host(entry).parse::<IpAddr>() {
        return whole(exact_address(ip));
    }
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (entry, None),
    };
    let host = normalize_host(host);
    let target = match host.parse::<IpAddr>() {
        Ok(ip) => exact_address(ip),
        Err(_) => {
            let name = host.trim_start_matches('*').trim_start_matches('.');
            let is_name_char = |c: char| c.is_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || !name.chars().all(is_name_char) {
                return None;
            }
            ExceptionTarget::Name(name.to_owned())
        }
    };
    Some(NamedException { target, port })
}

fn exact_address(ip: IpAddr) -> ExceptionTarget {
    let ip = normalize_ip(ip);
    ExceptionTarget::Network(ip, address_bits(ip))
}

fn address_bits(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn is_subdomain(host: &str, name: &str) -> bool {
    match host.strip_suffix(name) {
        Some(before) => before.is_empty() || before.ends_with('.'),
        None => false,
    }
}

fn has_common_prefix(one: IpAddr, other: IpAddr, bits: u32) -> bool {
    let apart = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => u128::from(u32::from(one) ^ u32::from(other)) << 96,
        (IpAddr::V6(one), IpAddr::V6(other)) => u128::from(one) ^ u128::from(other),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    apart.leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0056: suffixes, ports, networks and `*`, and nothing that only looks like them.
    #[test]
    fn exceptions_are_matched_exactly() {
        let text = "corp.test, .Below.test *.star.test,10.0.0.0/8 192.168.1.7,fd00::/8,[::2]:8443,at.test:8080,,";
        let exceptions = ProxyExceptions::parse_lenient(text);
        assert!(exceptions.invalid.is_empty(), "{exceptions:?}");
        for (host, port) in [
            ("corp.test", 443),
            ("a.corp.test", 80),
            ("below.test", 443),
            ("x.below.test", 443),
            ("y.star.test", 443),
            ("10.255.0.1", 443),
            ("::ffff:10.1.1.1", 443),
            ("192.168.1.7", 1),
            ("fd12::1", 443),
            ("::2", 8443),
            ("at.test", 8080),
        ] {
            assert!(exceptions.contains(host, port), "{host}:{port}");
        }
        for (host, port) in [
            ("notcorp.test", 443),
            ("corp.test.evil.test", 443),
            ("11.0.0.1", 443),
            ("192.168.1.70", 443),
            ("fe00::1", 443),
            ("::2", 443),
            ("at.test", 443),
        ] {
            assert!(!exceptions.contains(host, port), "{host}:{port}");
        }
        assert!(ProxyExceptions::parse_lenient("x, *").contains("anything.test", 1));
        assert!(ProxyExceptions::parse_lenient("0.0.0.0/0").contains("9.9.9.9", 1));
        assert!(!ProxyExceptions::default().contains("anything.test", 1));
        let unread =
            ProxyExceptions::parse_lenient("10.0.0.0/33,a b/c,x:port,ok.test,sp!ce").invalid;
        assert_eq!(unread, ["10.0.0.0/33", "b/c", "x:port", "sp!ce"]);
    }
}
