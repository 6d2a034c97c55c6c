//! Which addresses a document of somebody else may lead to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use tokio::net::lookup_host;

/// The addresses that may be connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressScope {
    /// All: a person wrote down where to go.
    #[default]
    Any,
    /// Those of the public network.
    Public,
    /// And those of private networks; never those of a link, where clouds answer with keys.
    Private,
    /// And this machine.
    Loopback,
}

impl AddressScope {
    /// How far a document may lead that was found from the address a person wrote: to this machine from one
    /// that names it as such, into private networks from one whose name has no address but there, else only to
    /// the public network. Asks for the addresses of the name, for as long as the caller waits.
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
            // Whoever owns a name can say that it is here.
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

    /// Whether this address is one of them.
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

/// The narrowest scope of an address; `None` for one that nobody has: of a link, of many, of no machine.
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

/// The IPv4 address that is meant: mapped, or behind a translator.
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
    fn a_document_leads_no_further_than_the_address_it_was_found_from() {
        let public = ["93.184.216.34", "2606:2800::1"];
        let private = [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ];
        let own = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];
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
            for group in [&public[..], &private, &own, &nobody] {
                for text in group {
                    let admits = scope.contains(text.parse().unwrap());
                    assert_eq!(admits, open.contains(&group), "{scope:?} {text}");
                }
            }
        };
        check(AddressScope::Public, &[&public]);
        check(AddressScope::Private, &[&public, &private]);
        check(AddressScope::Loopback, &[&public, &own]);
        check(AddressScope::Any, &[&public, &private, &own, &nobody]);
    }

    #[tokio::test]
    async fn the_written_address_says_how_far() {
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
