//! The end of a generation of a server.

use mgp_engine::servers::restart::ServerExit;
use mgp_transports::child;

/// How a generation ended.
pub(in crate::server) enum End {
    /// On order.
    Stopped,
    /// The process ended.
    ByItself,
    /// The process exited with this status.
    Exited(child::ChildExit),
    /// The server failed, for this reason.
    Failed(String),
    /// The server ended its HTTP session; it is healthy and needs a new handshake.
    SessionEnded(String),
    /// The server may not run in this configuration; a restart does not help.
    Rejected(String),
    /// Not a failure: it must be restarted with another protocol family.
    Retry,
}

impl End {
    /// Refines the end if the server ended its session.
    pub(super) fn refine_by_session(self, is_over: bool) -> Self {
        match self {
            Self::Failed(why) if is_over => Self::SessionEnded(why),
            end @ (Self::Stopped
            | Self::ByItself
            | Self::Exited(_)
            | Self::Failed(_)
            | Self::SessionEnded(_)
            | Self::Rejected(_)
            | Self::Retry) => end,
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Stopped => "it was stopped".into(),
            Self::ByItself | Self::Exited(_) => "its process ended".into(),
            Self::Failed(why) | Self::SessionEnded(why) | Self::Rejected(why) => why.clone(),
            Self::Retry => "it is started again".into(),
        }
    }

    /// The end for the restart policy, and as text.
    pub(super) fn into_exit(self) -> (ServerExit, String) {
        match self {
            Self::Stopped => (ServerExit::Clean, "stopped".into()),
            Self::Failed(why) => (ServerExit::Failed(why.clone()), why),
            Self::SessionEnded(why) => (ServerExit::SessionEnded(why.clone()), why),
            Self::Rejected(why) => (ServerExit::Rejected(why.clone()), why),
            Self::ByItself => (ServerExit::Clean, "its process ended".into()),
            Self::Retry => {
                let why = "no protocol version worked";
                (ServerExit::Failed(why.into()), why.into())
            }
            Self::Exited(exit) if exit.code == Some(0) => (ServerExit::Clean, exit.to_string()),
            Self::Exited(exit) => (ServerExit::Failed(exit.to_string()), exit.to_string()),
        }
    }
}
