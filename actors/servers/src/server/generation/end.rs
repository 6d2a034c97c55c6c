//! How a life of a server ended.

use mgp_engine::servers::restart::ServerExit;
use mgp_transports::child;

/// How a life ended.
pub(in crate::server) enum End {
    /// On order.
    Stopped,
    /// The process ended.
    ByItself,
    /// The process exited, in this way.
    Exited(child::ChildExit),
    /// The server failed, for this reason.
    Failed(String),
    /// It ended the session, in words: it is well, and wants a new handshake.
    SessionEnded(String),
    /// The server may not run as it is; a restart would not change that.
    Rejected(String),
    /// No failure: it must be restarted and spoken to in another era from the start.
    Again,
}

impl End {
    /// The same end, of a life whose session its server ended.
    pub(super) fn refine_by_session(self, is_over: bool) -> Self {
        match self {
            Self::Failed(why) if is_over => Self::SessionEnded(why),
            end @ (Self::Stopped
            | Self::ByItself
            | Self::Exited(_)
            | Self::Failed(_)
            | Self::SessionEnded(_)
            | Self::Rejected(_)
            | Self::Again) => end,
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Stopped => "it was stopped".into(),
            Self::ByItself | Self::Exited(_) => "its process ended".into(),
            Self::Failed(why) | Self::SessionEnded(why) | Self::Rejected(why) => why.clone(),
            Self::Again => "it is started again".into(),
        }
    }

    /// For the rules of restarts, and in words.
    pub(super) fn into_exit(self) -> (ServerExit, String) {
        match self {
            Self::Stopped => (ServerExit::Clean, "stopped".into()),
            Self::Failed(why) => (ServerExit::Failed(why.clone()), why),
            Self::SessionEnded(why) => (ServerExit::SessionEnded(why.clone()), why),
            Self::Rejected(why) => (ServerExit::Rejected(why.clone()), why),
            Self::ByItself => (ServerExit::Clean, "its process ended".into()),
            Self::Again => {
                let why = "it cannot be spoken to";
                (ServerExit::Failed(why.into()), why.into())
            }
            Self::Exited(exit) if exit.code == Some(0) => (ServerExit::Clean, exit.to_string()),
            Self::Exited(exit) => (ServerExit::Failed(exit.to_string()), exit.to_string()),
        }
    }
}
