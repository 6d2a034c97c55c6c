//! Servers that end when they are asked: old ones do at a question they do not know, and are started
//! again and asked otherwise. One that ended before it had read the question had a reason of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use mgp_transports::child::unread;
use mgp_transports::lines::LineSink;
use tokio::process::ChildStdin;

use crate::server::spoken::SpokenEras;

/// What a server is known to speak should it die while it is asked, and whether it has read what it was
/// asked.
#[derive(Debug, Default)]
pub(in crate::server) struct EarlyExit {
    spoken: Mutex<Option<SpokenEras>>,
    path: Mutex<Option<QuestionPath>>,
}

/// The path of a question to its server. While it is held, the server's stdin stays open.
#[derive(Debug)]
struct QuestionPath {
    sink: LineSink,
    pipe: OwnedFd,
}

impl EarlyExit {
    /// For a server that is written to through `sink` and then `stdin`.
    pub(in crate::server) fn behind(sink: &LineSink, stdin: &ChildStdin) -> Self {
        let pipe = stdin.as_fd().try_clone_to_owned();
        let path = pipe.ok().map(|pipe| QuestionPath {
            sink: sink.clone(),
            pipe,
        });
        Self {
            spoken: Mutex::default(),
            path: Mutex::new(path),
        }
    }

    /// It is about to be asked, and speaks this should it end at that; `None` once it was met.
    pub(in crate::server) fn set(&self, spoken: Option<SpokenEras>) {
        *self.spoken.lock().unwrap_or_else(PoisonError::into_inner) = spoken;
        if spoken.is_none() {
            self.let_go();
        }
    }

    /// It has ended or is to end: what it speaks, where it ended at what it was asked.
    pub(in crate::server) fn ended(&self) -> Option<SpokenEras> {
        let heard = self.let_go().is_none_or(|path| path.has_passed());
        let spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        spoken.filter(|_| heard)
    }

    fn let_go(&self) -> Option<QuestionPath> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        path.take()
    }
}

impl QuestionPath {
    /// Whether all that was sent was read.
    fn has_passed(&self) -> bool {
        self.sink.waiting() == 0 && unread(&self.pipe) == 0
    }
}
