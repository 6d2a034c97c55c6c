//! The state of local network discovery while it is used, and the received announcements.

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

/// Between two looks at how much is kept of what others say: a flood fills no more than it can send in it.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The network is left alone for so long after a failure or a flood.
const BACKOFF: Duration = Duration::from_secs(60);
/// How long the network may take to tell how much it keeps.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);
/// Written while it is on.
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
    /// Counts openings: what was heard in an earlier one is over.
    generation: u64,
    /// It is left alone until it may be tried again.
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

    /// On disk before it is done.
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

    /// Does what is not done yet.
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
            let hearing = self.spawn_receiver(network.listen()?);
            let looking = self.schedule_check();
            self.network = Some(OpenNetwork {
                network,
                announced: None,
                _receiver: hearing,
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
        let (mailbox, life) = (self.mailbox.clone(), self.generation);
        task::spawn_supervised("lan.hearing", async move {
            while let Some(sighting) = sightings.next().await {
                // The mailbox is full: the announcement will be repeated.
                let _ = mailbox.send(LanMsg::Sighted(life, sighting));
            }
            let _ = mailbox.send_to_self(LanMsg::Closed(life));
        })
    }

    fn schedule_check(&self) -> SupervisedTask<()> {
        let (mailbox, life) = (self.mailbox.clone(), self.generation);
        task::spawn_supervised("lan.looking", async move {
            loop {
                sleep(CHECK_INTERVAL).await;
                if mailbox.send_to_self(LanMsg::Check(life)).is_err() {
                    return;
                }
            }
        })
    }

    pub(super) fn record_sighting(&mut self, life: u64, sighting: &ReceivedAnnouncement) {
        if life != self.generation || self.network.is_none() || sighting.node == self.node {
            return;
        }
        let cluster = self.announcement.as_ref().and_then(|here| here.cluster);
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

    /// Too many came at once, or the network is down.
    pub(super) fn handle_closed(&mut self, life: u64) {
        if life == self.generation && self.network.is_some() {
            self.back_off("more came at once than can be heard".to_owned());
        }
    }

    pub(super) async fn check_load(&mut self, life: u64) {
        let Some(open) = self.network.as_ref().filter(|_| life == self.generation) else {
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

    /// Leaves the network alone for a while.
    fn back_off(&mut self, why: String) {
        self.close();
        let left = BACKOFF.as_secs();
        tracing::warn!("the local network is left alone for {left} s: {why}");
        self.failure = Some(format!("{why}; it is tried again after {left} s"));
        self.backing_off = true;
        let (mailbox, life) = (self.mailbox.clone(), self.generation);
        task::spawn_detached("lan.rest", async move {
            sleep(BACKOFF).await;
            let _ = mailbox.send_to_self(LanMsg::Retry(life));
        });
    }

    pub(super) fn retry(&mut self, life: u64) {
        if life == self.generation && self.backing_off {
            self.backing_off = false;
            self.failure = None;
            self.refresh();
        }
    }

    /// Says goodbye beside the actor: that takes its time.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.network.take() {
            task::spawn_detached("lan.goodbye", async move {
                let _ = task::run_blocking("lan.goodbye", move || open.network.close()).await;
            });
        }
    }

    pub(super) fn status(&self) -> LanStatus {
        let now = time::monotonic_now();
        let ago = |seen| u64::try_from(now.duration_since(seen).as_millis()).unwrap_or(u64::MAX);
        let seen = self.observed.list(now).into_iter();
        let open = self.network.as_ref();
        LanStatus {
            enabled: self.enabled,
            announced: open.is_some_and(|open| open.announced.is_some()),
            interfaces: open.map(|_| lan::active_interfaces()).unwrap_or_default(),
            observed: seen
                .map(|seen| (seen.clone(), ago(seen.last_seen)))
                .collect(),
            dropped_sightings: self.observed.dropped_count(),
            failure: self.failure.clone(),
        }
    }
}

fn announcement(here: NodeId, presence: &LanAnnouncement) -> Announcement {
    let tag = |cluster: [u8; 32]| ClusterTag::new(&cluster, randomness::random_bytes());
    Announcement {
        node: here,
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
