//! `[cluster]`: the name of this node, and its addresses.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use mgp_protocol::federation::hello::NodeName;
use mgp_screening::results::ResultRules;
use nix::sys::utsname::uname;

use super::results::read_results;
use super::section;
use crate::config::parsing::Section;

/// Most `peers`: each is dialed as long as it does not answer.
const PEERS_MAX: usize = 64;
/// Most advertised addresses: the capacity of a ticket.
pub(crate) const ADVERTISED_MAX: usize = 8;
/// Longest address: a DNS name and a port.
const ADDRESS_LENGTH_MAX: usize = 253 + 6;

section! {
    /// `[cluster]`.
    ClusterConfig {
        /// The name of this node; `None` for the machine's name.
        name: Option<NodeName> = None, parse("name", NodeName::parse);
        /// Where it listens for other nodes, once it is in a cluster or invites to one.
        listen: SocketAddr = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 7332)), read_with(read_listen_address);
        /// Its addresses, as `host:port`; found automatically if empty.
        advertise: Vec<String> = Vec::new(),
            read_with(|section, into| read_addresses(section, "advertise", ADVERTISED_MAX, into));
        /// Addresses of other nodes of its cluster, as `host:port`.
        peers: Vec<String> = Vec::new(), read_with(|section, into| read_addresses(section, "peers", PEERS_MAX, into));
        /// How long rights of other nodes' agents last here without contact to an admin that could revoke them.
        lease: Duration = Duration::from_secs(30), secs("lease_secs", 10..=300);
        /// Whether packets are relayed between nodes that have no link to each other.
        relay: bool = true, flag("relay");
        /// How results of servers of other nodes are guarded.
        results: Option<ResultRules> = None, read_with(read_results);
    }
}

impl ClusterConfig {
    /// The name of this node unless the cluster has another.
    #[must_use]
    pub(crate) fn node_name(&self) -> NodeName {
        let machine = || {
            let system_names = uname().ok();
            let name = system_names
                .as_ref()
                .map(|system_names| system_names.nodename().to_string_lossy());
            NodeName::from_hostname(&name.unwrap_or_default())
        };
        self.name.clone().unwrap_or_else(machine)
    }
}

fn read_listen_address(section: &mut Section<'_, '_, '_>, into: &mut SocketAddr) {
    let Some(text) = section.text("listen") else {
        return;
    };
    match text.get_ref().parse() {
        Ok(address) => *into = address,
        Err(_) => {
            let why = " wants an address and a port, like [::]:7332 for every network, or 192.168.1.2:7332 for one";
            section.reject_key(text.span(), "listen", why);
        }
    }
}

/// A list of `host:port`.
fn read_addresses(
    section: &mut Section<'_, '_, '_>,
    key: &'static str,
    most: usize,
    into: &mut Vec<String>,
) {
    let Some(texts) = section.texts(key) else {
        return;
    };
    if let Some(beyond) = texts.get(most) {
        section.reject_key(
            beyond.span(),
            key,
            &format!(" names more than {most} addresses"),
        );
    }
    for text in &texts {
        if let Err(why) = check_host_port(text.get_ref()) {
            section.reject_key(text.span(), key, &format!(": {:?} {why}", text.get_ref()));
        }
    }
    let texts = texts.into_iter().take(most);
    *into = texts.map(|text| text.into_inner().to_owned()).collect();
}

/// Checks the form of `host:port`. The host is looked up only when it is dialed.
pub(crate) fn check_host_port(text: &str) -> Result<(), &'static str> {
    const WANTED: &str = "is no host and port, like nas.lan:7332 or 192.168.1.2:7332";
    if text.parse::<SocketAddr>().is_ok_and(|at| at.port() != 0) {
        return Ok(());
    }
    let (host, port) = text
        .rsplit_once(':')
        .ok_or("has no port: write nas.lan:7332")?;
    if host.contains(':') {
        return Err("is an IPv6 address without brackets: write [fe80::1]:7332");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let good = !host.is_empty() && text.len() <= ADDRESS_LENGTH_MAX && host.chars().all(plain);
    match port.parse::<u16>() {
        Ok(1..) if good => Ok(()),
        Ok(_) | Err(_) => Err(WANTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["nas:7332", "nas.lan:1", "10.0.0.2:7332", "[fe80::1]:7332"] {
            assert_eq!(check_host_port(good), Ok(()), "{good}");
        }
        for (bad, words) in [
            ("nas", "no port"),
            ("nas:", "no host"),
            ("nas:0", "no host"),
            ("10.0.0.2:0", "no host"),
            (":7332", "no host"),
            ("na s:7332", "no host"),
            ("https://nas:7332", "brackets"),
            ("fe80::1:7332", "brackets"),
            ("nas:99999", "no host"),
        ] {
            assert!(check_host_port(bad).unwrap_err().contains(words), "{bad}");
        }
    }

    /// Holds for any hostname.
    #[test]
    fn the_default_node_name_is_the_hostname() {
        let name = ClusterConfig::default().node_name();
        assert!(NodeName::parse(name.as_str()).is_ok());
        let named = ClusterConfig {
            name: NodeName::parse("nas").ok(),
            ..ClusterConfig::default()
        };
        assert_eq!(named.node_name().as_str(), "nas");
    }
}
