//! Nodes on the local network, by mDNS: says that this one is there, and hears of others. Said are its id, its
//! port, the version of the links' protocol, and a mark by which its own cluster knows it; never a name of
//! anything. What is heard proves nothing: an address to try, where the key is shown.

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
/// Most addresses taken from one announcement.
pub(crate) const ADDRESSES_MAX: usize = 8;
/// Most records that are kept of what others say, some hundred bytes each. A network with more of them is
/// flooded, and not listened to for a while.
pub const RECORDS_MAX: i64 = 8192;
/// How long the goodbye may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// The keys of an announcement.
const ID: &str = "id";
const VERSION: &str = "v";
const CLUSTER: &str = "c";

mgp_protocol::hex_id! {
    /// By this the nodes of a cluster know each other's announcements. Half of it is a salt, new for each
    /// announcement: nobody else can tell which of them are of one cluster.
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
        let mark = hasher.finalize();
        let mut tag = [0; 32];
        tag[..Self::SALT].copy_from_slice(&salt);
        tag[Self::SALT..].copy_from_slice(&mark.as_bytes()[..32 - Self::SALT]);
        Self(tag)
    }

    /// Whether it is one of this cluster. Whoever heard it can repeat it.
    #[must_use]
    pub fn matches_cluster(&self, cluster: &[u8]) -> bool {
        let mut salt = [0; Self::SALT];
        salt.copy_from_slice(&self.0[..Self::SALT]);
        *self == Self::new(cluster, salt)
    }
}

/// What is said of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its id.
    pub node: NodeId,
    /// Where it listens, at every address of the interfaces that are used.
    pub port: u16,
    /// The newest version of the links' protocol that it speaks.
    pub version: u16,
    /// Its cluster.
    pub tag: Option<ClusterTag>,
}

/// What somebody says of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedAnnouncement {
    /// The id it says it has.
    pub node: NodeId,
    /// Where it says it is, [`ADDRESSES_MAX`] at most.
    pub addresses: Vec<SocketAddr>,
    /// The version it says it speaks.
    pub(crate) version: u16,
    /// The cluster it says it is of.
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

/// The local network, from opening to closing.
pub struct LocalNetwork {
    daemon: ServiceDaemon,
    errors: Receiver<DaemonEvent>,
    announced: Option<String>,
}

impl LocalNetwork {
    /// Begins to listen. Nothing is said before [`Self::announce`] and [`Self::listen`].
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn open() -> Result<Self, MdnsError> {
        let daemon = ServiceDaemon::new()?;
        let used = |one: &if_addrs::Interface| is_up(one) && !one.is_loopback();
        daemon.disable_interface(IfKind::All)?;
        daemon.enable_interface(IfKind::Predicate(IfPredicate::new(used)))?;
        Ok(Self {
            errors: daemon.monitor()?,
            daemon,
            announced: None,
        })
    }

    /// Says that a node is there, instead of what was said before.
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn announce(&mut self, node: &Announcement, salt: [u8; 8]) -> Result<(), MdnsError> {
        self.withdraw()?;
        // The names of an announcement are new each time: they tell nobody which machine it is.
        let name: String = salt.iter().map(|byte| format!("{byte:02x}")).collect();
        let (id, version) = (node.node.to_string(), node.version.to_string());
        let tag = node.tag.map(|tag| tag.to_string());
        let mut said = vec![(ID, &*id), (VERSION, &*version)];
        said.extend(tag.as_deref().map(|tag| (CLUSTER, tag)));
        let host = format!("{name}.local.");
        let service = ServiceInfo::new(SERVICE, &name, &host, "", node.port, &said[..])?;
        let service = service.enable_addr_auto();
        self.announced = Some(service.get_fullname().to_owned());
        Ok(self.daemon.register(service)?)
    }

    /// Takes back what was announced.
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn withdraw(&mut self) -> Result<(), MdnsError> {
        if let Some(name) = self.announced.take() {
            self.daemon.unregister(&name)?;
        }
        Ok(())
    }

    /// Asks who is there.
    ///
    /// # Errors
    /// [`MdnsError`].
    pub fn listen(&self) -> Result<ReceivedAnnouncements, MdnsError> {
        Ok(ReceivedAnnouncements(self.daemon.browse(SERVICE)?))
    }

    /// How many records of others are kept; `None` when that cannot be told now.
    pub async fn cached_record_count(&self) -> Option<i64> {
        let figures = self.daemon.get_metrics().ok()?.recv_async().await.ok()?;
        let cached = figures
            .iter()
            .filter(|(name, _)| name.starts_with("cached-"));
        Some(cached.map(|(_, count)| count).sum())
    }

    /// The next thing that went wrong since it was asked last, where something did.
    #[must_use]
    pub fn next_error(&self) -> Option<MdnsError> {
        self.errors.try_iter().find_map(|event| {
            let DaemonEvent::Error(error) = event else {
                return None;
            };
            Some(error.into())
        })
    }

    /// Says goodbye and ends. What is said last may be lost, and is forgotten by itself within two minutes.
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

/// The interfaces that are used now, each once.
#[must_use]
pub fn active_interfaces() -> Vec<String> {
    let up = interfaces::active_addresses()
        .unwrap_or_default()
        .into_iter();
    let mut names: Vec<String> = up
        .filter(|one| !one.ip.is_loopback())
        .map(|one| one.name)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Who says that it is there.
pub struct ReceivedAnnouncements(Receiver<ServiceEvent>);

impl ReceivedAnnouncements {
    /// The next one; `None` when nothing more comes, since too many came at once or the network was closed.
    pub async fn next(&self) -> Option<ReceivedAnnouncement> {
        loop {
            match self.0.recv_async().await {
                Ok(ServiceEvent::ServiceResolved(service)) => {
                    if let Some(sighting) = parse_service(&service) {
                        return Some(sighting);
                    }
                }
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }
}

/// What an announcement says, where it says enough.
fn parse_service(service: &ResolvedService) -> Option<ReceivedAnnouncement> {
    let said = |key| service.txt_properties.get(key)?.val();
    let text = |key| std::str::from_utf8(said(key)?).ok();
    let addresses = service.addresses.iter();
    let mut addresses: Vec<SocketAddr> = addresses
        .filter_map(|ip| socket_address(ip, service.port))
        .collect();
    addresses.sort();
    addresses.truncate(ADDRESSES_MAX);
    let sighting = ReceivedAnnouncement {
        node: NodeId::parse(text(ID)?)?,
        addresses,
        version: text(VERSION)?.parse().ok()?,
        tag: text(CLUSTER).and_then(ClusterTag::parse),
    };
    (!sighting.addresses.is_empty()).then_some(sighting)
}

/// Where a packet can be sent to one machine of the network.
fn socket_address(ip: &ScopedIp, port: u16) -> Option<SocketAddr> {
    let plain = ip.to_ip_addr();
    let one = !plain.is_loopback() && !plain.is_multicast() && !plain.is_unspecified();
    if !one || port == 0 {
        return None;
    }
    Some(match (ip, plain) {
        (ScopedIp::V6(scoped), IpAddr::V6(v6)) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, scoped.scope_id().index).into()
        }
        _ => SocketAddr::new(plain, port),
    })
}
