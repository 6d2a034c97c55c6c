//! The addresses that a document from somebody else may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use tokio::net::lookup_host;

/// The addresses that may be connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressScope {
    /// All: a person configured the address.
    #[default]
    Any,
    /// Addresses of the public network.
    Public,
    /// Also private networks; never link-local ones, where clouds serve credentials.
    Private,
    /// Also this machine.
    Loopback,
}

impl AddressScope {
    /// The scope of documents that were found from an address that a person configured: this machine if the address names
    /// it as such, private networks if all addresses of the name are in them, otherwise only the public network. Resolves
    /// the name, without a timeout of its own.
    pub async fn from_url(written: &Uri) -> Self {
        let host = written.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Self::for_addresses(&[ip]);
        }
        if host == "localhost" {
            return Self::Loopback;
        }
        let found = lookup_host((host, 443)).await;
        let ips: Vec<IpAddr> = found
            .map(|all| all.map(|at| at.ip()).collect())
            .unwrap_or_default();
        match Self::for_addresses(&ips) {
            // The owner of a name can let it resolve to this machine.
            Self::Loopback | Self::Any => Self::Public,
            scope @ (Self::Public | Self::Private) => scope,
        }
    }

    fn for_addresses(ips: &[IpAddr]) -> Self {
        let all = |scope: Self| {
            !ips.is_empty() && ips.iter().all(|ip| narrowest_scope(*ip) == Some(scope))
        };
        match (all(Self::Loopback), all(Self::Private)) {
            (true, _) => Self::Loopback,
            (false, true) => Self::Private,
            (false, false) => Self::Public,
        }
    }

    /// Whether the scope includes this address.
    #[must_use]
    pub fn contains(self, ip: IpAddr) -> bool {
        match (self, narrowest_scope(ip)) {
            (Self::Any, _)
            | (_, Some(Self::Public))
            | (Self::Private, Some(Self::Private))
            | (Self::Loopback, Some(Self::Loopback)) => true,
            (Self::Public | Self::Private | Self::Loopback, _) => false,
        }
    }
}

/// The narrowest scope of an address; `None` for link-local, multicast and unspecified ones.
fn narrowest_scope(ip: IpAddr) -> Option<AddressScope> {
    match ip {
        IpAddr::V4(ip) => narrowest_scope_v4(ip),
        IpAddr::V6(ip) => match embedded_v4(ip) {
            Some(ip) => narrowest_scope_v4(ip),
            None => narrowest_scope_v6(ip),
        },
    }
}

fn narrowest_scope_v4(ip: Ipv4Addr) -> Option<AddressScope> {
    let [a, b, ..] = ip.octets();
    match (a, b) {
        (127, _) => Some(AddressScope::Loopback),
        (10, _) | (172, 16..=31) | (192, 168) | (100, 64..=127) | (198, 18..=19) => {
            Some(AddressScope::Private)
        }
        (0 | 224.., _) | (169, 254) => None,
        _ => Some(AddressScope::Public),
    }
}

fn narrowest_scope_v6(ip: Ipv6Addr) -> Option<AddressScope> {
    match ip.segments()[0] {
        _ if ip.is_loopback() => Some(AddressScope::Loopback),
        _ if ip.is_unspecified() => None,
        0xfc00..=0xfdff => Some(AddressScope::Private),
        0xfe80..=0xffff => None,
        _ => Some(AddressScope::Public),
    }
}

/// The embedded IPv4 address: mapped, or behind a translator (NAT64).
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low] = ip.segments();
    let v4 = || Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let translated = ip.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    ip.to_ipv4_mapped().or_else(|| translated.then(v4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_admits_only_its_addresses() {
        let public = ["93.184.216.34", "2606:2800::1"];
        let private = [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ];
        let loopback = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];
        let nobody = [
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "ff02::1",
            "::",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ];
        let check = |scope: AddressScope, open: &[&[&str]]| {
            for group in [&public[..], &private, &loopback, &nobody] {
                for text in group {
                    let admits = scope.contains(text.parse().unwrap());
                    assert_eq!(admits, open.contains(&group), "{scope:?} {text}");
                }
            }
        };
        check(AddressScope::Public, &[&public]);
        check(AddressScope::Private, &[&public, &private]);
        check(AddressScope::Loopback, &[&public, &loopback]);
        check(AddressScope::Any, &[&public, &private, &loopback, &nobody]);
    }

    #[tokio::test]
    async fn the_configured_address_determines_the_scope() {
        let from = async |url: &str| AddressScope::from_url(&url.parse().unwrap()).await;
        assert_eq!(from("http://127.0.0.1:1/mcp").await, AddressScope::Loopback);
        assert_eq!(from("http://[::1]:1/mcp").await, AddressScope::Loopback);
        assert_eq!(from("http://localhost:1/mcp").await, AddressScope::Loopback);
        assert_eq!(from("https://10.0.0.1/mcp").await, AddressScope::Private);
        assert_eq!(
            from("https://93.184.216.34/mcp").await,
            AddressScope::Public
        );
        assert_eq!(
            from("https://nowhere.invalid/mcp").await,
            AddressScope::Public
        );
    }
}
