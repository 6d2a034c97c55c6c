//! The state of local network discovery and the received announcements.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_discovery::lan::{
    self, Announcement, ClusterTag, LocalNetwork, MdnsError, RECORDS_MAX, ReceivedAnnouncement,
    ReceivedAnnouncements,
};
use mgp_engine::cluster::discovered_nodes::DiscoveredNodes;
use mgp_protocol::federation::hello::WIRE_VERSIONS;
use mgp_protocol::ids::NodeId;
use mgp_runtime::task::SupervisedTask;
use mgp_runtime::{EventSink, Mailbox, randomness, task, time};
use mgp_store::{Witness, atomic_file};
use tokio::time::{sleep, timeout};

use super::{LanAnnouncement, LanMsg, LanStart, LanStatus};

/// The interval of load checks: a flood cannot buffer more than it can send in one interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The backoff after a failure or a flood.
const BACKOFF: Duration = Duration::from_secs(60);
/// The deadline for reading the metrics of the network.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);
/// The file that exists while discovery is enabled.
const FILE: &str = "lan";

/// The state of the actor.
#[derive(Debug)]
pub(super) struct LanState {
    node: NodeId,
    file: PathBuf,
    witness: Witness,
    addresses: EventSink<(NodeId, SocketAddr)>,
    mailbox: Mailbox<LanMsg>,
    enabled: bool,
    announcement: Option<LanAnnouncement>,
    network: Option<OpenNetwork>,
    /// Incremented with each opening: events of an earlier generation are ignored.
    generation: u64,
    /// True until the backoff ends.
    backing_off: bool,
    observed: DiscoveredNodes,
    failure: Option<String>,
}

#[derive(Debug)]
struct OpenNetwork {
    network: LocalNetwork,
    announced: Option<LanAnnouncement>,
    _receiver: SupervisedTask<()>,
    _monitor: SupervisedTask<()>,
}

impl LanState {
    pub(super) fn new(start: LanStart, mailbox: Mailbox<LanMsg>) -> Self {
        let file = start.folder.join(FILE);
        Self {
            node: start.node,
            enabled: is_enabled(&file),
            file,
            witness: start.witness,
            addresses: start.addresses,
            mailbox,
            announcement: None,
            network: None,
            generation: 0,
            backing_off: false,
            observed: DiscoveredNodes::default(),
            failure: None,
        }
    }

    /// Stores the setting on disk before it is applied.
    pub(super) async fn set_enabled(&mut self, on: bool) -> io::Result<LanStatus> {
        if on != self.enabled {
            let (file, witness) = (self.file.clone(), self.witness.clone());
            let write = move || save_enabled(&file, &witness, on);
            let written = task::run_blocking("lan.switch", write).await;
            written.map_err(io::Error::other)??;
            self.enabled = on;
            self.backing_off = false;
            self.failure = None;
        }
        self.refresh();
        Ok(self.status())
    }

    pub(super) fn set_announcement(&mut self, presence: Option<LanAnnouncement>) {
        self.announcement = presence;
        self.refresh();
    }

    /// Opens or closes the network as the settings require.
    pub(super) fn refresh(&mut self) {
        if !self.enabled {
            self.close();
            self.observed = DiscoveredNodes::default();
            return;
        }
        if self.backing_off {
            return;
        }
        if let Err(trouble) = self.open_and_announce() {
            self.back_off(trouble.to_string());
        }
    }

    fn open_and_announce(&mut self) -> Result<(), MdnsError> {
        if self.network.is_none() {
            self.generation += 1;
            let network = LocalNetwork::open()?;
            let receiver = self.spawn_receiver(network.listen()?);
            let looking = self.schedule_check();
            self.network = Some(OpenNetwork {
                network,
                announced: None,
                _receiver: receiver,
                _monitor: looking,
            });
        }
        let Some(open) = &mut self.network else {
            return Ok(());
        };
        if open.announced != self.announcement {
            match &self.announcement {
                Some(presence) => {
                    let announcement = announcement(self.node, presence);
                    open.network
                        .announce(&announcement, randomness::random_bytes())?;
                }
                None => open.network.withdraw()?,
            }
            open.announced.clone_from(&self.announcement);
        }
        Ok(())
    }

    fn spawn_receiver(&self, sightings: ReceivedAnnouncements) -> SupervisedTask<()> {
        let (mailbox, generation) = (self.mailbox.clone(), self.generation);
        task::spawn_supervised("lan.hearing", async move {
            while let Some(sighting) = sightings.next().await {
                // The mailbox is full: the announcement will be repeated.
                let _ = mailbox.send(LanMsg::Sighted(generation, sighting));
            }
            let _ = mailbox.send_to_self(LanMsg::Closed(generation));
        })
    }

    fn schedule_check(&self) -> SupervisedTask<()> {
        let (mailbox, generation) = (self.mailbox.clone(), self.generation);
        task::spawn_supervised("lan.looking", async move {
            loop {
                sleep(CHECK_INTERVAL).await;
                if mailbox.send_to_self(LanMsg::Check(generation)).is_err() {
                    return;
                }
            }
        })
    }

    pub(super) fn record_sighting(&mut self, generation: u64, sighting: &ReceivedAnnouncement) {
        if generation != self.generation || self.network.is_none() || sighting.node == self.node {
            return;
        }
        let cluster = self.announcement.as_ref().and_then(|local| local.cluster);
        let same = cluster.is_some_and(|cluster| {
            sighting
                .tag
                .is_some_and(|tag| tag.matches_cluster(&cluster))
        });
        let (node, now) = (sighting.node, time::monotonic_now());
        for address in self
            .observed
            .record_announcement(node, &sighting.addresses, same, now)
        {
            self.addresses.send((node, address));
        }
    }

    /// Handles the end of the receiver: a flood, or a network that is down.
    pub(super) fn handle_closed(&mut self, generation: u64) {
        if generation == self.generation && self.network.is_some() {
            self.back_off("more came at once than can be heard".to_owned());
        }
    }

    pub(super) async fn check_load(&mut self, generation: u64) {
        let Some(open) = self
            .network
            .as_ref()
            .filter(|_| generation == self.generation)
        else {
            return;
        };
        let records = timeout(METRICS_TIMEOUT, open.network.cached_record_count()).await;
        match (records, open.network.next_error()) {
            (Ok(Some(records)), None) if records <= RECORDS_MAX => self.failure = None,
            (Ok(Some(records)), None) => {
                self.back_off(format!(
                    "somebody floods the local network ({records} records)"
                ));
            }
            (Ok(Some(_)), Some(trouble)) => self.failure = Some(trouble.to_string()),
            (Ok(None) | Err(_), _) => self.back_off("the local network does not answer".to_owned()),
        }
    }

    /// Closes the network for the backoff time.
    fn back_off(&mut self, reason: String) {
        self.close();
        let seconds = BACKOFF.as_secs();
        tracing::warn!("local network discovery is paused for {seconds} s: {reason}");
        self.failure = Some(format!("{reason}; the next attempt is in {seconds} s"));
        self.backing_off = true;
        let (mailbox, generation) = (self.mailbox.clone(), self.generation);
        task::spawn_detached("lan.rest", async move {
            sleep(BACKOFF).await;
            let _ = mailbox.send_to_self(LanMsg::Retry(generation));
        });
    }

    pub(super) fn retry(&mut self, generation: u64) {
        if generation == self.generation && self.backing_off {
            self.backing_off = false;
            self.failure = None;
            self.refresh();
        }
    }

    /// Closes the network in a task of its own, because the goodbye takes time.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.network.take() {
            task::spawn_detached("lan.goodbye", async move {
                let _ = task::run_blocking("lan.goodbye", move || open.network.close()).await;
            });
        }
    }

    pub(super) fn status(&self) -> LanStatus {
        let now = time::monotonic_now();
        let ago =
            |observed| u64::try_from(now.duration_since(observed).as_millis()).unwrap_or(u64::MAX);
        let observed = self.observed.list(now).into_iter();
        let open = self.network.as_ref();
        LanStatus {
            enabled: self.enabled,
            announced: open.is_some_and(|open| open.announced.is_some()),
            interfaces: open.map(|_| lan::active_interfaces()).unwrap_or_default(),
            observed: observed
                .map(|observed| (observed.clone(), ago(observed.last_seen)))
                .collect(),
            dropped_sightings: self.observed.dropped_count(),
            failure: self.failure.clone(),
        }
    }
}

fn announcement(local: NodeId, presence: &LanAnnouncement) -> Announcement {
    let tag = |cluster: [u8; 32]| ClusterTag::new(&cluster, randomness::random_bytes());
    Announcement {
        node: local,
        port: presence.port,
        version: WIRE_VERSIONS.highest,
        tag: presence.cluster.map(tag),
    }
}

fn is_enabled(file: &Path) -> bool {
    file.exists()
}

fn save_enabled(file: &Path, witness: &Witness, on: bool) -> io::Result<()> {
    if on {
        atomic_file::write(file, b"on\n")?;
        witness.settle_presence();
        return Ok(());
    }
    witness.forget()?;
    match std::fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => atomic_file::sync_folder(file),
    }
}
