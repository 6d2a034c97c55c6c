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

/// The announced data of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanAnnouncement {
    /// The port of its link listener.
    pub port: u16,
    /// The id of its cluster.
    pub cluster: Option<[u8; 32]>,
}

/// The status of local network discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanStatus {
    /// True if it is enabled.
    pub enabled: bool,
    /// True if this node is announced now.
    pub announced: bool,
    /// The network interfaces that are used.
    pub interfaces: Vec<String>,
    /// The announced nodes, with the age of each announcement in milliseconds.
    pub observed: Vec<(DiscoveredNode, u64)>,
    /// The number of announcements dropped for lack of capacity.
    pub dropped_sightings: u64,
    /// Why it does not work at the moment.
    pub failure: Option<String>,
}

/// The parameters of the actor.
#[derive(Debug)]
pub struct LanStart {
    /// This node.
    pub node: NodeId,
    /// The kernel's data folder, which stores whether discovery is enabled.
    pub folder: PathBuf,
    /// The witness of that file.
    pub witness: Witness,
    /// Receives discovered addresses to dial.
    pub addresses: EventSink<(NodeId, SocketAddr)>,
}

/// Handle of the actor.
#[derive(Clone, Debug)]
pub struct LanHandle {
    mailbox: Mailbox<LanMsg>,
}

/// Errors of enabling or disabling discovery.
#[derive(Debug, thiserror::Error)]
pub enum LanError {
    /// The setting could not be stored, so it was not applied.
    #[error("the data folder could not be written: {0}")]
    Disk(std::io::Error),
    /// The actor was not reached.
    #[error(transparent)]
    Unreachable(#[from] AskError),
}

impl LanStart {
    /// Starts the actor. Discovery is enabled at once if it was before the restart.
    ///
    /// # Errors
    /// The actor cannot be started.
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
    /// Enables discovery, persistently.
    ///
    /// # Errors
    /// [`LanError`]; then the setting is unchanged.
    pub async fn enable(&self) -> Result<LanStatus, LanError> {
        self.set_enabled(true).await
    }

    /// Disables discovery, persistently, and withdraws the announcement.
    ///
    /// # Errors
    /// [`LanError`]; then the setting is unchanged.
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

    /// The status of discovery.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn status(&self) -> Result<LanStatus, AskError> {
        self.mailbox.ask(LanMsg::Status).await
    }

    /// Sets the announced data of this node; `None` withdraws the announcement.
    pub fn set_announcement(&self, presence: Option<LanAnnouncement>) {
        let _ = self.mailbox.send_to_self(LanMsg::SetAnnouncement(presence));
    }
}

/// Messages to the actor.
#[derive(Debug)]
pub enum LanMsg {
    /// Enable or disable.
    SetEnabled(bool, Reply<Result<LanStatus, std::io::Error>>),
    /// Get the status.
    Status(Reply<LanStatus>),
    /// Set the announced data of this node.
    SetAnnouncement(Option<LanAnnouncement>),
    /// A node's announcement, received in this generation of the network.
    Sighted(u64, ReceivedAnnouncement),
    /// The receiver of this generation ended.
    Closed(u64),
    /// The load of this generation is to be checked.
    Check(u64),
    /// The backoff of this generation is over.
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
