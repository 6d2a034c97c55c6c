//! Servers that exit when asked about their era: old servers do so at an unknown question, and are restarted
//! and asked differently. A server that exited before it read the question had another reason.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use mgp_transports::child::unread_bytes;
use mgp_transports::lines::LineSink;
use tokio::process::ChildStdin;

use crate::server::protocol_families::SpokenFamilies;

/// The eras to assume if the server exits while it is asked, and whether it has read the question.
#[derive(Debug, Default)]
pub(in crate::server) struct EarlyExit {
    spoken: Mutex<Option<SpokenFamilies>>,
    path: Mutex<Option<ProbePath>>,
}

/// The way of a question to the server. Holding it keeps the server's stdin open.
#[derive(Debug)]
struct ProbePath {
    sink: LineSink,
    pipe: OwnedFd,
}

impl EarlyExit {
    /// For a server written to through `sink` and then `stdin`.
    pub(in crate::server) fn new(sink: &LineSink, stdin: &ChildStdin) -> Self {
        let pipe = stdin.as_fd().try_clone_to_owned();
        let path = pipe.ok().map(|pipe| ProbePath {
            sink: sink.clone(),
            pipe,
        });
        Self {
            spoken: Mutex::default(),
            path: Mutex::new(path),
        }
    }

    /// The server is about to be asked; if it exits then, assume these eras. `None` after the handshake.
    pub(in crate::server) fn set_assumed(&self, spoken: Option<SpokenFamilies>) {
        *self.spoken.lock().unwrap_or_else(PoisonError::into_inner) = spoken;
        if spoken.is_none() {
            self.release_path();
        }
    }

    /// The server has exited or is to end: the eras to assume, if it exited at the question.
    pub(in crate::server) fn take_assumed(&self) -> Option<SpokenFamilies> {
        let heard = self.release_path().is_none_or(|path| path.is_drained());
        let spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        spoken.filter(|_| heard)
    }

    fn release_path(&self) -> Option<ProbePath> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        path.take()
    }
}

impl ProbePath {
    /// Whether the server has read all that was sent.
    fn is_drained(&self) -> bool {
        self.sink.queued_frames() == 0 && unread_bytes(&self.pipe) == 0
    }
}
