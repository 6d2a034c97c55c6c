//! Nodes on the local network, by mDNS: announces this one, and discovers others. An announcement has the node's id, its
//! port, the version of the link protocol, and a tag that its own cluster recognizes; never a name. Received announcements
//! prove nothing: they are addresses to dial, where the key is verified.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use mdns_sd::{
    DaemonEvent, IfKind, IfPredicate, Receiver, ResolvedService, ScopedIp, ServiceDaemon,
    ServiceEvent, ServiceInfo,
};
use mgp_protocol::ids::NodeId;

use crate::interfaces::{self, is_up};

#[cfg(test)]
mod tests;

/// The service, as it is announced.
pub(crate) const SERVICE: &str = "_mgp._udp.local.";
/// Most addresses accepted from one announcement.
pub(crate) const ADDRESSES_MAX: usize = 8;
/// Most cached records of other nodes, some hundred bytes each. A network with more of them is flooded, and ignored for a
/// while.
pub const RECORDS_MAX: i64 = 8192;
/// How long withdrawing the announcement may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// The keys of an announcement.
const ID: &str = "id";
const VERSION: &str = "v";
const CLUSTER: &str = "c";

mgp_protocol::hex_id! {
    /// Lets the nodes of a cluster recognize each other's announcements. Half of it is a salt, new for each announcement:
    /// nobody else can tell which announcements belong to one cluster.
    ClusterTag, 32
}

impl ClusterTag {
    /// Bytes of the salt.
    pub(crate) const SALT: usize = 16;

    /// The tag of a cluster, by its id.
    #[must_use]
    pub fn new(cluster: &[u8], salt: [u8; Self::SALT]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("mgp 2026-11 cluster tag");
        hasher.update(&salt).update(cluster);
        let digest = hasher.finalize();
        let mut tag = [0; 32];
        tag[..Self::SALT].copy_from_slice(&salt);
        tag[Self::SALT..].copy_from_slice(&digest.as_bytes()[..32 - Self::SALT]);
        Self(tag)
    }

    /// Whether the tag is of this cluster. Anyone who received it can replay it.
    #[must_use]
    pub fn matches_cluster(&self, cluster: &[u8]) -> bool {
        let mut salt = [0; Self::SALT];
        salt.copy_from_slice(&self.0[..Self::SALT]);
        *self == Self::new(cluster, salt)
    }
}

/// The announcement of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its id.
    pub node: NodeId,
    /// The port it listens on, at every address of the used interfaces.
    pub port: u16,
    /// The newest supported version of the link protocol.
    pub version: u16,
    /// The tag of its cluster.
    pub tag: Option<ClusterTag>,
}

/// An announcement of another node, unverified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedAnnouncement {
    /// The claimed id.
    pub node: NodeId,
    /// The claimed addresses, at most [`ADDRESSES_MAX`].
    pub addresses: Vec<SocketAddr>,
    /// The claimed version.
    pub(crate) version: u16,
    /// The claimed cluster.
    pub tag: Option<ClusterTag>,
}

/// Why the local network cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the local network cannot be used: {0}; is UDP port 5353 open to this program?")]
pub struct MdnsError(String);

impl From<mdns_sd::Error> for MdnsError {
    fn from(error: mdns_sd::Error) -> Self {
        Self(error.to_string())
    }
}

/// The use of the local network, until it is closed.
pub struct LocalNetwork {
    daemon: ServiceDaemon,
    errors: Receiver<DaemonEvent>,
    announced: Option<String>,
}

impl LocalNetwork {
    /// Opens it. Sends nothing before [`Self::announce`] and [`Self::listen`].
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn open() -> Result<Self, MdnsError> {
        let daemon = ServiceDaemon::new()?;
        let is_used =
            |interface: &if_addrs::Interface| is_up(interface) && !interface.is_loopback();
        daemon.disable_interface(IfKind::All)?;
        daemon.enable_interface(IfKind::Predicate(IfPredicate::new(is_used)))?;
        Ok(Self {
            errors: daemon.monitor()?,
            daemon,
            announced: None,
        })
    }

    /// Announces a node, instead of the earlier announcement.
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn announce(&mut self, node: &Announcement, salt: [u8; 8]) -> Result<(), MdnsError> {
        self.withdraw()?;
        // The names in an announcement are new each time, so that they do not identify the machine.
        let name: String = salt.iter().map(|byte| format!("{byte:02x}")).collect();
        let (id, version) = (node.node.to_string(), node.version.to_string());
        let tag = node.tag.map(|tag| tag.to_string());
        let mut properties = vec![(ID, &*id), (VERSION, &*version)];
        properties.extend(tag.as_deref().map(|tag| (CLUSTER, tag)));
        let host = format!("{name}.local.");
        let service = ServiceInfo::new(SERVICE, &name, &host, "", node.port, &properties[..])?;
        let service = service.enable_addr_auto();
        self.announced = Some(service.get_fullname().to_owned());
        Ok(self.daemon.register(service)?)
    }

    /// Withdraws the announcement.
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn withdraw(&mut self) -> Result<(), MdnsError> {
        if let Some(name) = self.announced.take() {
            self.daemon.unregister(&name)?;
        }
        Ok(())
    }

    /// Queries for other nodes.
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn listen(&self) -> Result<ReceivedAnnouncements, MdnsError> {
        Ok(ReceivedAnnouncements(self.daemon.browse(SERVICE)?))
    }

    /// The number of cached records of others; `None` if it is not available now.
    pub async fn cached_record_count(&self) -> Option<i64> {
        let metrics = self.daemon.get_metrics().ok()?.recv_async().await.ok()?;
        let cached = metrics
            .iter()
            .filter(|(name, _)| name.starts_with("cached-"));
        Some(cached.map(|(_, count)| count).sum())
    }

    /// The next error since the last call, if there was one.
    #[must_use]
    pub fn next_error(&self) -> Option<MdnsError> {
        self.errors.try_iter().find_map(|event| {
            let DaemonEvent::Error(error) = event else {
                return None;
            };
            Some(error.into())
        })
    }

    /// Withdraws the announcement and ends. If that is lost, the announcement expires within two minutes.
    pub fn close(mut self) {
        let _ = self.withdraw();
        if let Ok(ended) = self.daemon.shutdown() {
            let _ = ended.recv_timeout(GOODBYE_TIMEOUT);
        }
    }
}

impl std::fmt::Debug for LocalNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalNetwork")
            .field("announced", &self.announced)
            .finish_non_exhaustive()
    }
}

/// The currently used interfaces, each once.
#[must_use]
pub fn active_interfaces() -> Vec<String> {
    let up = interfaces::active_addresses()
        .unwrap_or_default()
        .into_iter();
    let mut names: Vec<String> = up
        .filter(|interface| !interface.ip.is_loopback())
        .map(|interface| interface.name)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The received announcements.
pub struct ReceivedAnnouncements(Receiver<ServiceEvent>);

impl ReceivedAnnouncements {
    /// The next one; `None` at the end, when too many arrived at once or the network was closed.
    pub async fn next(&self) -> Option<ReceivedAnnouncement> {
        loop {
            match self.0.recv_async().await {
                Ok(ServiceEvent::ServiceResolved(service)) => {
                    if let Some(announcement) = parse_service(&service) {
                        return Some(announcement);
                    }
                }
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

/// The announcement of a service, if it is complete.
fn parse_service(service: &ResolvedService) -> Option<ReceivedAnnouncement> {
    let properties = |key| service.txt_properties.get(key)?.val();
    let text = |key| std::str::from_utf8(properties(key)?).ok();
    let addresses = service.addresses.iter();
    let mut addresses: Vec<SocketAddr> = addresses
        .filter_map(|ip| socket_address(ip, service.port))
        .collect();
    addresses.sort();
    addresses.truncate(ADDRESSES_MAX);
    let announcement = ReceivedAnnouncement {
        node: NodeId::parse(text(ID)?)?,
        addresses,
        version: text(VERSION)?.parse().ok()?,
        tag: text(CLUSTER).and_then(ClusterTag::parse),
    };
    (!announcement.addresses.is_empty()).then_some(announcement)
}

/// The unicast address of one machine of the network.
fn socket_address(ip: &ScopedIp, port: u16) -> Option<SocketAddr> {
    let plain = ip.to_ip_addr();
    let is_host = !plain.is_loopback() && !plain.is_multicast() && !plain.is_unspecified();
    if !is_host || port == 0 {
        return None;
    }
    Some(match (ip, plain) {
        (ScopedIp::V6(scoped), IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, scoped.scope_id().index).into()
        }
        _ => SocketAddr::new(plain, port),
    })
}
