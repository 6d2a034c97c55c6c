//! Servers that exit when they receive `server/discover`: old servers do that, and are restarted in the legacy
//! family. A server that exited before reading the request had another reason.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use mgp_transports::child::unread_bytes;
use mgp_transports::lines::LineSink;
use tokio::process::ChildStdin;

use crate::server::protocol_families::SpokenFamilies;

/// The families to assume if the server exits during the probe, and whether it has read the request.
#[derive(Debug, Default)]
pub(in crate::server) struct EarlyExit {
    spoken: Mutex<Option<SpokenFamilies>>,
    path: Mutex<Option<ProbePath>>,
}

/// The pipe to the server. Holding it keeps the server's stdin open.
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

    /// Sets the families to assume if the server exits from now on; `None` after the handshake.
    pub(in crate::server) fn set_assumed(&self, spoken: Option<SpokenFamilies>) {
        *self.spoken.lock().unwrap_or_else(PoisonError::into_inner) = spoken;
        if spoken.is_none() {
            self.release_path();
        }
    }

    /// After the server's exit: the families to assume, if it exited because of the probe.
    pub(in crate::server) fn take_assumed(&self) -> Option<SpokenFamilies> {
        let has_read = self.release_path().is_none_or(|path| path.is_drained());
        let spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        spoken.filter(|_| has_read)
    }

    fn release_path(&self) -> Option<ProbePath> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        path.take()
    }
}

impl ProbePath {
    /// True if the server has read everything.
    fn is_drained(&self) -> bool {
        self.sink.queued_frames() == 0 && unread_bytes(&self.pipe) == 0
    }
}
