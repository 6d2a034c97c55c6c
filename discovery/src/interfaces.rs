//! Where this machine is reached: the addresses of its network interfaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most addresses: all of them stand in a ticket that a person copies.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// One address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub(crate) ip: IpAddr,
}

/// The addresses of all interfaces that are up, loopback among them.
///
/// # Errors
/// The system's.
pub(crate) fn active_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let all = if_addrs::get_if_addrs()?;
    let up = all.into_iter().filter(is_up);
    let up = up.map(|one| InterfaceAddress {
        ip: one.ip(),
        name: one.name,
    });
    Ok(up.collect())
}

/// Whether an interface can carry anything. Some never say: a loopback, and tunnels.
pub(crate) fn is_up(one: &if_addrs::Interface) -> bool {
    use if_addrs::IfOperStatus::{Dormant, Down, LowerLayerDown, NotPresent};
    !matches!(
        one.oper_status,
        Down | NotPresent | LowerLayerDown | Dormant
    )
}

/// Where others may reach who listens at `listen`: hints for a ticket, the likeliest first. Loopback only where
/// there is nothing else, or where it is listened at.
///
/// # Errors
/// The system's.
pub fn reachable_addresses(listen: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    Ok(address_hints(listen, &active_addresses()?))
}

fn address_hints(listen: SocketAddr, up: &[InterfaceAddress]) -> Vec<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return vec![listen];
    }
    // Who listens at all addresses of IPv6 listens at those of IPv4, too.
    let heard = |ip: &IpAddr| listen.is_ipv6() || ip.is_ipv4();
    let mut found: Vec<IpAddr> = up.iter().map(|one| one.ip).filter(heard).collect();
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

/// An address of IPv6 that holds on one link alone means nothing without the other machine's number of it.
fn is_hint(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local(),
    }
}

/// IPv4 of the network goes before IPv6, and before what a machine gives itself where nobody does.
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

    fn at(ips: &[&str]) -> Vec<InterfaceAddress> {
        let one = |ip: &&str| InterfaceAddress {
            name: "eth0".into(),
            ip: ip.parse().unwrap(),
        };
        ips.iter().map(one).collect()
    }

    fn told(listen: &str, ips: &[&str]) -> Vec<String> {
        let hints = address_hints(listen.parse().unwrap(), &at(ips));
        hints.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_ticket_names_the_addresses_others_can_reach() {
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
            told("[::]:7332", &all),
            ["192.168.1.2:7332", "[2001:db8::5]:7332", "169.254.3.4:7332"]
        );
        assert_eq!(told("0.0.0.0:1", &all), ["192.168.1.2:1", "169.254.3.4:1"]);
    }

    #[test]
    fn loopback_is_named_where_it_is_all_there_is_or_listened_at() {
        assert_eq!(told("0.0.0.0:1", &["127.0.0.1"]), ["127.0.0.1:1"]);
        assert_eq!(
            told("[::]:1", &["::1", "fe80::1"]),
            ["127.0.0.1:1", "[::1]:1"]
        );
        assert_eq!(told("127.0.0.1:1", &["192.168.1.2"]), ["127.0.0.1:1"]);
    }

    #[test]
    fn a_machine_of_many_addresses_names_some() {
        let many: Vec<String> = (0..40).map(|n| format!("10.0.0.{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(told("0.0.0.0:1", &many).len(), ADDRESSES_MAX);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        assert!(
            active_addresses()
                .unwrap()
                .iter()
                .any(|one| one.ip.is_loopback())
        );
    }
}
