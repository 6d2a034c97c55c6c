//! How a life of a server came to its end.

use mgp_engine::servers::restart::ServerExit;
use mgp_transports::child;

/// How a life came to its end.
pub(in crate::server) enum End {
    /// Somebody asked.
    Stopped,
    /// The process ended.
    ByItself,
    /// The process ended, and this is how.
    Exited(child::ChildExit),
    /// Something is wrong with it.
    Failed(String),
    /// It may not run as it is, and starting it again does not change that.
    Rejected(String),
    /// Nothing is wrong with it, but it must be spoken to otherwise from its first word on.
    Again,
}

impl End {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Stopped => "it was stopped".into(),
            Self::ByItself | Self::Exited(_) => "its process ended".into(),
            Self::Failed(why) | Self::Rejected(why) => why.clone(),
            Self::Again => "it is started again".into(),
        }
    }

    /// For the restart rules, and in words.
    pub(super) fn exit(self) -> (ServerExit, String) {
        match self {
            Self::Stopped => (ServerExit::Clean, "stopped".into()),
            Self::Failed(why) => (ServerExit::Failed(why.clone()), why),
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
