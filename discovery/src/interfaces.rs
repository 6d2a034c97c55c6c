//! The addresses of this machine's network interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most addresses: all of them are in a ticket that a person copies.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// An address of an active interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    /// The interface's name.
    pub(crate) name: String,
    /// The address.
    pub(crate) ip: IpAddr,
}

/// The addresses of all active interfaces, loopback included.
///
/// # Errors
/// The system's error.
pub(crate) fn active_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let all = if_addrs::get_if_addrs()?;
    let up = all.into_iter().filter(is_up);
    let up = up.map(|interface| InterfaceAddress {
        ip: interface.ip(),
        name: interface.name,
    });
    Ok(up.collect())
}

/// Whether an interface can carry traffic. Some report no state: a loopback, and tunnels.
pub(crate) fn is_up(interface: &if_addrs::Interface) -> bool {
    use if_addrs::IfOperStatus::{Dormant, Down, LowerLayerDown, NotPresent};
    !matches!(
        interface.oper_status,
        Down | NotPresent | LowerLayerDown | Dormant
    )
}

/// The addresses at which others may reach a listener at `listen`: hints for a ticket, the likeliest first. Loopback only
/// if there is no other, or if it is the listening address.
///
/// # Errors
/// The system's error.
pub fn reachable_addresses(listen: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    Ok(address_hints(listen, &active_addresses()?))
}

fn address_hints(listen: SocketAddr, up: &[InterfaceAddress]) -> Vec<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return vec![listen];
    }
    // A listener on all IPv6 addresses accepts IPv4, too.
    let is_accepted = |ip: &IpAddr| listen.is_ipv6() || ip.is_ipv4();
    let mut found: Vec<IpAddr> = up
        .iter()
        .map(|interface| interface.ip)
        .filter(is_accepted)
        .collect();
    found.retain(|ip| !ip.is_loopback() && is_hint(ip));
    found.sort_by_key(rank);
    found.dedup();
    if found.is_empty() {
        found.push(Ipv4Addr::LOCALHOST.into());
        if listen.is_ipv6() {
            found.push(Ipv6Addr::LOCALHOST.into());
        }
    }
    found.truncate(ADDRESSES_MAX);
    let port = listen.port();
    found
        .into_iter()
        .map(|ip| SocketAddr::new(ip, port))
        .collect()
}

/// A link-local IPv6 address is useless without the other machine's interface number.
fn is_hint(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local(),
    }
}

/// IPv4 addresses of the network come before IPv6, and before self-assigned ones.
fn rank(ip: &IpAddr) -> (u8, IpAddr) {
    let rank = match ip {
        IpAddr::V4(v4) if v4.is_link_local() => 2,
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    };
    (rank, *ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(ips: &[&str]) -> Vec<InterfaceAddress> {
        let interface = |ip: &&str| InterfaceAddress {
            name: "eth0".into(),
            ip: ip.parse().unwrap(),
        };
        ips.iter().map(interface).collect()
    }

    fn hints(listen: &str, ips: &[&str]) -> Vec<String> {
        let hints = address_hints(listen.parse().unwrap(), &addresses(ips));
        hints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_ticket_has_the_reachable_addresses() {
        let all = [
            "127.0.0.1",
            "::1",
            "169.254.3.4",
            "fe80::1",
            "2001:db8::5",
            "192.168.1.2",
            "192.168.1.2",
        ];
        assert_eq!(
            hints("[::]:7332", &all),
            ["192.168.1.2:7332", "[2001:db8::5]:7332", "169.254.3.4:7332"]
        );
        assert_eq!(hints("0.0.0.0:1", &all), ["192.168.1.2:1", "169.254.3.4:1"]);
    }

    #[test]
    fn loopback_is_used_if_there_is_no_other_address_or_it_is_listened_on() {
        assert_eq!(hints("0.0.0.0:1", &["127.0.0.1"]), ["127.0.0.1:1"]);
        assert_eq!(
            hints("[::]:1", &["::1", "fe80::1"]),
            ["127.0.0.1:1", "[::1]:1"]
        );
        assert_eq!(hints("127.0.0.1:1", &["192.168.1.2"]), ["127.0.0.1:1"]);
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let many: Vec<String> = (0..40).map(|n| format!("10.0.0.{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hints("0.0.0.0:1", &many).len(), ADDRESSES_MAX);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        assert!(
            active_addresses()
                .unwrap()
                .iter()
                .any(|interface| interface.ip.is_loopback())
        );
    }
}
