//! The local network while it is used, and what was heard.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mgp_discovery::lan::{
    self, Announcement, ClusterTag, LanTrouble, LocalNetwork, RECORDS_MAX, Sighting, Sightings,
};
use mgp_engine::cluster::seen_nodes::SeenNodes;
use mgp_protocol::federation::hello::WIRE_VERSIONS;
use mgp_protocol::ids::NodeId;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::Mailbox;
use mgp_runtime::task::{self, SupervisedTask};
use mgp_runtime::{randomness, time};
use mgp_store::atomic_file;
use mgp_store::witnesses::Witness;
use tokio::time::{sleep, timeout};

use super::{LanMsg, LanPresence, LanStart, LanStatus};

/// Between two looks at how much is kept of what others say: a flood fills no more than it can send in it.
const PACE: Duration = Duration::from_secs(2);
/// The network is left alone for so long after a failure or a flood.
const REST: Duration = Duration::from_secs(60);
/// How long the network may take to tell how much it keeps.
const PATIENCE: Duration = Duration::from_secs(1);
/// Written while it is on.
const FILE: &str = "lan";

/// The state of the actor.
#[derive(Debug)]
pub(super) struct LanState {
    here: NodeId,
    file: PathBuf,
    witness: Witness,
    found: EventSink<(NodeId, SocketAddr)>,
    mailbox: Mailbox<LanMsg>,
    on: bool,
    presence: Option<LanPresence>,
    network: Option<OpenNetwork>,
    /// Counts openings: what was heard in an earlier one is over.
    life: u64,
    /// It is left alone until it may be tried again.
    resting: bool,
    seen: SeenNodes,
    why: Option<String>,
}

#[derive(Debug)]
struct OpenNetwork {
    network: LocalNetwork,
    said: Option<LanPresence>,
    _hearing: SupervisedTask<()>,
    _looking: SupervisedTask<()>,
}

impl LanState {
    pub(super) fn new(start: LanStart, mailbox: Mailbox<LanMsg>) -> Self {
        let file = start.folder.join(FILE);
        Self {
            here: start.here,
            on: is_on(&file),
            file,
            witness: start.witness,
            found: start.found,
            mailbox,
            presence: None,
            network: None,
            life: 0,
            resting: false,
            seen: SeenNodes::default(),
            why: None,
        }
    }

    /// On disk before it is done.
    pub(super) async fn switch(&mut self, on: bool) -> io::Result<LanStatus> {
        if on != self.on {
            let (file, witness) = (self.file.clone(), self.witness.clone());
            let write = move || remember(&file, &witness, on);
            let written = task::blocking("lan.switch", write).await;
            written.map_err(io::Error::other)??;
            self.on = on;
            self.resting = false;
            self.why = None;
        }
        self.refresh();
        Ok(self.status())
    }

    pub(super) fn present(&mut self, presence: Option<LanPresence>) {
        self.presence = presence;
        self.refresh();
    }

    /// Does what is not done yet.
    pub(super) fn refresh(&mut self) {
        if !self.on {
            self.close();
            self.seen = SeenNodes::default();
            return;
        }
        if self.resting {
            return;
        }
        if let Err(trouble) = self.open_and_say() {
            self.rest(trouble.to_string());
        }
    }

    fn open_and_say(&mut self) -> Result<(), LanTrouble> {
        if self.network.is_none() {
            self.life += 1;
            let network = LocalNetwork::open()?;
            let hearing = self.hear(network.listen()?);
            let looking = self.look_later();
            self.network = Some(OpenNetwork {
                network,
                said: None,
                _hearing: hearing,
                _looking: looking,
            });
        }
        let Some(open) = &mut self.network else {
            return Ok(());
        };
        if open.said != self.presence {
            match &self.presence {
                Some(presence) => {
                    let announcement = announcement(self.here, presence);
                    open.network.announce(&announcement, randomness::bytes())?;
                }
                None => open.network.withdraw()?,
            }
            open.said.clone_from(&self.presence);
        }
        Ok(())
    }

    fn hear(&self, sightings: Sightings) -> SupervisedTask<()> {
        let (mailbox, life) = (self.mailbox.clone(), self.life);
        task::supervised("lan.hearing", async move {
            while let Some(sighting) = sightings.next().await {
                // Where the mailbox is full: it is heard again.
                let _ = mailbox.tell(LanMsg::Saw(life, sighting));
            }
            let _ = mailbox.remind(LanMsg::Silent(life));
        })
    }

    fn look_later(&self) -> SupervisedTask<()> {
        let (mailbox, life) = (self.mailbox.clone(), self.life);
        task::supervised("lan.looking", async move {
            loop {
                sleep(PACE).await;
                if mailbox.remind(LanMsg::Look(life)).is_err() {
                    return;
                }
            }
        })
    }

    pub(super) fn saw(&mut self, life: u64, sighting: &Sighting) {
        if life != self.life || self.network.is_none() || sighting.node == self.here {
            return;
        }
        let cluster = self.presence.as_ref().and_then(|here| here.cluster);
        let same =
            cluster.is_some_and(|cluster| sighting.tag.is_some_and(|tag| tag.is_of(&cluster)));
        let (node, now) = (sighting.node, time::moment());
        for address in self.seen.saw(node, &sighting.addresses, same, now) {
            self.found.send((node, address));
        }
    }

    /// Too many came at once, or the network is gone.
    pub(super) fn silent(&mut self, life: u64) {
        if life == self.life && self.network.is_some() {
            self.rest("more came at once than can be heard".to_owned());
        }
    }

    pub(super) async fn look(&mut self, life: u64) {
        let Some(open) = self.network.as_ref().filter(|_| life == self.life) else {
            return;
        };
        let records = timeout(PATIENCE, open.network.records()).await;
        match (records, open.network.trouble()) {
            (Ok(Some(records)), None) if records <= RECORDS_MAX => self.why = None,
            (Ok(Some(records)), None) => {
                self.rest(format!(
                    "somebody floods the local network ({records} records)"
                ));
            }
            (Ok(Some(_)), Some(trouble)) => self.why = Some(trouble.to_string()),
            (Ok(None) | Err(_), _) => self.rest("the local network does not answer".to_owned()),
        }
    }

    /// Leaves the network alone for a while.
    fn rest(&mut self, why: String) {
        self.close();
        let left = REST.as_secs();
        tracing::warn!("the local network is left alone for {left} s: {why}");
        self.why = Some(format!("{why}; it is tried again after {left} s"));
        self.resting = true;
        let (mailbox, life) = (self.mailbox.clone(), self.life);
        task::detached("lan.rest", async move {
            sleep(REST).await;
            let _ = mailbox.remind(LanMsg::Again(life));
        });
    }

    pub(super) fn again(&mut self, life: u64) {
        if life == self.life && self.resting {
            self.resting = false;
            self.why = None;
            self.refresh();
        }
    }

    /// Says goodbye beside the actor: that takes its time.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.network.take() {
            task::detached("lan.goodbye", async move {
                let _ = task::blocking("lan.goodbye", move || open.network.close()).await;
            });
        }
    }

    pub(super) fn status(&self) -> LanStatus {
        let now = time::moment();
        let ago = |seen| u64::try_from(now.since(seen).as_millis()).unwrap_or(u64::MAX);
        let seen = self.seen.all(now).into_iter();
        let open = self.network.as_ref();
        LanStatus {
            on: self.on,
            announced: open.is_some_and(|open| open.said.is_some()),
            interfaces: open.map(|_| lan::used()).unwrap_or_default(),
            seen: seen.map(|seen| (seen.clone(), ago(seen.seen))).collect(),
            passed_over: self.seen.passed_over(),
            why: self.why.clone(),
        }
    }
}

fn announcement(here: NodeId, presence: &LanPresence) -> Announcement {
    let tag = |cluster: [u8; 32]| ClusterTag::new(&cluster, randomness::bytes());
    Announcement {
        node: here,
        port: presence.port,
        version: WIRE_VERSIONS.highest,
        tag: presence.cluster.map(tag),
    }
}

fn is_on(file: &Path) -> bool {
    file.exists()
}

fn remember(file: &Path, witness: &Witness, on: bool) -> io::Result<()> {
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
