//! Local network discovery: announces this node and receives announcements of others, once the operator enabled that.
//!
//! The operator and the kernel send requests; the dialer gets the addresses. When it fails or is flooded, it is
//! paused for a while and retried.

mod state;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;

use mgp_discovery::lan::ReceivedAnnouncement;
use mgp_engine::cluster::discovered_nodes::DiscoveredNode;
use mgp_protocol::ids::NodeId;
use mgp_runtime::{AskError, EventSink, Mailbox, Queued, Reply};
use mgp_store::Witness;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};

use self::state::LanState;

/// What is said of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanAnnouncement {
    /// Where it listens for links.
    pub port: u16,
    /// The id of its cluster.
    pub cluster: Option<[u8; 32]>,
}

/// How it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanStatus {
    /// Whether it is switched on.
    pub enabled: bool,
    /// Whether this node is announced now.
    pub announced: bool,
    /// The network interfaces that are used.
    pub interfaces: Vec<String>,
    /// The announced nodes, with the age of each announcement in milliseconds.
    pub observed: Vec<(DiscoveredNode, u64)>,
    /// How many announcements were dropped for lack of capacity.
    pub dropped_sightings: u64,
    /// Why it does not work at the moment.
    pub failure: Option<String>,
}

/// What it needs.
#[derive(Debug)]
pub struct LanStart {
    /// This node.
    pub node: NodeId,
    /// The kernel's data folder, which remembers whether it is on.
    pub folder: PathBuf,
    /// The witness of the file that says so.
    pub witness: Witness,
    /// Told of addresses that are worth a try.
    pub addresses: EventSink<(NodeId, SocketAddr)>,
}

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct LanHandle {
    mailbox: Mailbox<LanMsg>,
}

/// Why it could not be switched.
#[derive(Debug, thiserror::Error)]
pub enum LanError {
    /// It is not known on disk, and so was not done.
    #[error("the data folder could not be written: {0}")]
    Disk(std::io::Error),
    /// The actor was not reached.
    #[error(transparent)]
    Unreachable(#[from] AskError),
}

impl LanStart {
    /// Starts the actor. It is on at once where it was when it ended.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(self) -> Result<(LanHandle, ActorCell), SpawnErr> {
        let mailbox = Mailbox::new_restartable();
        let actor = LanActor {
            mailbox: mailbox.clone(),
        };
        let cell = mailbox.start(actor, self).await?;
        Ok((LanHandle { mailbox }, cell))
    }
}

impl LanHandle {
    /// Switches it on, over restarts.
    ///
    /// # Errors
    /// [`LanError`]; then it is as before.
    pub async fn enable(&self) -> Result<LanStatus, LanError> {
        self.set_enabled(true).await
    }

    /// Switches it off, over restarts, and takes back what was announced.
    ///
    /// # Errors
    /// [`LanError`]; then it is as before.
    pub async fn disable(&self) -> Result<LanStatus, LanError> {
        self.set_enabled(false).await
    }

    async fn set_enabled(&self, on: bool) -> Result<LanStatus, LanError> {
        let switched = self
            .mailbox
            .ask(|reply| LanMsg::SetEnabled(on, reply))
            .await?;
        switched.map_err(LanError::Disk)
    }

    /// How it is.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn status(&self) -> Result<LanStatus, AskError> {
        self.mailbox.ask(LanMsg::Status).await
    }

    /// What is said of this node from now on, while it is on; nothing with `None`.
    pub fn set_announcement(&self, presence: Option<LanAnnouncement>) {
        let _ = self.mailbox.send_to_self(LanMsg::SetAnnouncement(presence));
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum LanMsg {
    /// On or off.
    SetEnabled(bool, Reply<Result<LanStatus, std::io::Error>>),
    /// How it is.
    Status(Reply<LanStatus>),
    /// What is said of this node.
    SetAnnouncement(Option<LanAnnouncement>),
    /// A node's announcement, received in this instance of the network.
    Sighted(u64, ReceivedAnnouncement),
    /// Nothing more is received in this instance.
    Closed(u64),
    /// It is time to look at this life.
    Check(u64),
    /// It may be tried again.
    Retry(u64),
}

/// Fixed at construction.
#[derive(Debug)]
struct LanActor {
    mailbox: Mailbox<LanMsg>,
}

impl Actor for LanActor {
    type Msg = Queued<LanMsg>;
    type State = LanState;
    type Arguments = LanStart;

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        start: LanStart,
    ) -> Result<LanState, ActorProcessingErr> {
        Ok(LanState::new(start, self.mailbox.clone()))
    }

    async fn post_start(
        &self,
        _: ActorRef<Self::Msg>,
        state: &mut LanState,
    ) -> Result<(), ActorProcessingErr> {
        state.refresh();
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut LanState,
    ) -> Result<(), ActorProcessingErr> {
        match message.into_message() {
            LanMsg::SetEnabled(on, reply) => reply.send(state.set_enabled(on).await),
            LanMsg::Status(reply) => reply.send(state.status()),
            LanMsg::SetAnnouncement(presence) => state.set_announcement(presence),
            LanMsg::Sighted(life, sighting) => state.record_sighting(life, &sighting),
            LanMsg::Closed(life) => state.handle_closed(life),
            LanMsg::Check(life) => state.check_load(life).await,
            LanMsg::Retry(life) => state.retry(life),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Self::Msg>,
        state: &mut LanState,
    ) -> Result<(), ActorProcessingErr> {
        state.close();
        Ok(())
    }
}
