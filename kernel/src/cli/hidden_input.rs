//! Reads secrets from the terminal without echo.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sys::select::{FdSet, select};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::termios::{
    FlushArg, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcflush, tcgetattr, tcsetattr,
};

use super::failure::Failure;

/// Longest line, in bytes: the longest secret.
const LINE_MAX: usize = 64 << 10;
/// Signals that end the command; they are blocked until the terminal is restored.
const TERMINATION_SIGNALS: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// The terminal without echo, from before the first question on: a secret may be pasted right after it. Input typed
/// ahead answers the next question.
///
/// Dropping it restores the terminal, also on Ctrl-C and on a signal. Unread input is discarded: further lines of a
/// secret must not be echoed or executed by a shell.
pub(super) struct HiddenInput {
    terminal: File,
    saved_termios: Termios,
    signals: BlockedSignals,
    /// Input not yet consumed: one read at most.
    read_ahead: VecDeque<u8>,
}

impl HiddenInput {
    /// Disables the echo of the process's terminal.
    ///
    /// # Errors
    /// Without a terminal, or if it does not support this.
    pub(super) fn open() -> io::Result<Self> {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        let before = tcgetattr(&terminal)?;
        let mut hidden = before.clone();
        // Read byte by byte, because the system truncates lines after 4095 bytes.
        hidden
            .local_flags
            .remove(LocalFlags::ECHO | LocalFlags::ECHONL | LocalFlags::ICANON);
        let keys = &mut hidden.control_chars;
        keys[SpecialCharacterIndices::VMIN as usize] = 1;
        keys[SpecialCharacterIndices::VTIME as usize] = 0;
        // No Ctrl-Z: the shell would get this terminal without echo.
        keys[SpecialCharacterIndices::VSUSP as usize] = 0;
        let unseen = Self {
            signals: BlockedSignals::block()?,
            terminal,
            saved_termios: before,
            read_ahead: VecDeque::new(),
        };
        // Immediately, keeping earlier input.
        tcsetattr(&unseen.terminal, SetArg::TCSANOW, &hidden)?;
        Ok(unseen)
    }

    /// Prompts, and reads a line.
    ///
    /// # Errors
    /// Ctrl-C and the like, a closed terminal, and an invalid secret.
    pub(super) fn read_secret(&mut self, question: &str) -> Result<String, Failure> {
        self.terminal.write_all(question.as_bytes())?;
        let mut line = TypedLine::default();
        let read = loop {
            match self.next_byte() {
                Ok(Some(byte)) if line.push_key(byte) => {}
                Ok(_) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        // The line ending was not echoed either. A closed terminal has been reported above.
        let _ = self.terminal.write_all(b"\n");
        read.and_then(|()| {
            line.into_text()
                .map_err(|why| Failure::Usage(why.to_owned()))
        })
    }

    /// The next byte of input; `None` at the end.
    fn next_byte(&mut self) -> Result<Option<u8>, Failure> {
        while self.read_ahead.is_empty() {
            let signals = self.signals.received.as_fd();
            let mut ready = FdSet::new();
            ready.insert(signals);
            ready.insert(self.terminal.as_fd());
            // Some systems cannot poll terminals.
            match select(None, &mut ready, None, None, None) {
                Err(Errno::EINTR) => continue,
                selected => selected.map_err(io::Error::from)?,
            };
            if ready.contains(signals) {
                return Err(Failure::Interrupted);
            }
            let mut part = [0; 4096];
            match self.terminal.read(&mut part) {
                Ok(0) => return Ok(None),
                Ok(n) => self.read_ahead.extend(&part[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(self.read_ahead.pop_front())
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        let _ = tcflush(&self.terminal, FlushArg::TCIFLUSH);
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.saved_termios);
        self.signals.unblock();
    }
}

/// The signals that end the command, received by a thread (sigwait(3)) while they are blocked.
struct BlockedSignals {
    saved_mask: SigSet,
    /// Readable once one was received.
    received: PipeReader,
    signal: Receiver<Signal>,
}

/// Where received signals go; `None` while none are blocked.
static RECEIVER: Mutex<Option<(Sender<Signal>, PipeWriter)>> = Mutex::new(None);

impl BlockedSignals {
    fn block() -> io::Result<Self> {
        static THREAD: OnceLock<()> = OnceLock::new();
        let ending: SigSet = TERMINATION_SIGNALS.into_iter().collect();
        let (received, wake) = io::pipe()?;
        let (sender, signal) = mpsc::channel();
        let saved_mask = ending.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let blocked = Self {
            saved_mask,
            received,
            signal,
        };
        *lock_receiver() = Some((sender, wake));
        if THREAD.get().is_none() {
            // The thread starts with the signals blocked, and stays.
            if let Err(error) = thread::Builder::new().spawn(move || receive_signals(ending)) {
                blocked.unblock();
                return Err(error);
            }
            let _ = THREAD.set(());
        }
        Ok(blocked)
    }

    /// A received signal ends the process here.
    fn unblock(&self) {
        *lock_receiver() = None;
        if let Ok(signal) = self.signal.try_recv() {
            let _ = raise(signal);
        }
        let _ = self.saved_mask.thread_set_mask();
    }
}

fn lock_receiver() -> MutexGuard<'static, Option<(Sender<Signal>, PipeWriter)>> {
    RECEIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receive_signals(ending: SigSet) {
    while let Ok(signal) = ending.wait() {
        if let Some((sender, wake)) = &mut *lock_receiver() {
            let _ = sender.send(signal);
            let _ = wake.write_all(b"s");
            continue;
        }
        // Nobody hides input now: it has its usual effect.
        let one: SigSet = [signal].into_iter().collect();
        let _ = one.thread_unblock().and_then(|()| raise(signal));
        let _ = one.thread_block();
    }
}

/// A line being typed.
#[derive(Default)]
struct TypedLine {
    bytes: Vec<u8>,
    escape: EscapeState,
}

/// Parser state for escape sequences of keys such as arrows, which are skipped.
#[derive(Clone, Copy, Default)]
enum EscapeState {
    #[default]
    Outside,
    Started,
    Sequence,
}

impl TypedLine {
    /// Processes a key; false when it ends the line.
    fn push_key(&mut self, byte: u8) -> bool {
        const CTRL_D: u8 = 0x04;
        const CTRL_U: u8 = 0x15;
        const CTRL_W: u8 = 0x17;
        match (self.escape, byte) {
            (_, b'\n' | b'\r' | CTRL_D) => return false,
            (EscapeState::Outside, 0x1b) => self.escape = EscapeState::Started,
            (EscapeState::Started, b'[' | b'O') => self.escape = EscapeState::Sequence,
            (EscapeState::Started, _) | (EscapeState::Sequence, 0x40..=0x7e) => {
                self.escape = EscapeState::Outside
            }
            (EscapeState::Outside, 0x08 | 0x7f) => self.pop_char(),
            (EscapeState::Outside, CTRL_U | CTRL_W) => self.bytes.clear(),
            (EscapeState::Outside, b'\t' | b' '..) if self.bytes.len() <= LINE_MAX => {
                self.bytes.push(byte);
            }
            (EscapeState::Sequence | EscapeState::Outside, _) => {}
        }
        true
    }

    /// Removes the last character.
    fn pop_char(&mut self) {
        while let Some(byte) = self.bytes.pop() {
            let goes_on = byte & 0xc0 == 0x80;
            if !goes_on {
                break;
            }
        }
    }

    /// The line; errors never contain it.
    fn into_text(self) -> Result<String, &'static str> {
        if self.bytes.len() > LINE_MAX {
            return Err("what was typed is longer than 64 KiB");
        }
        String::from_utf8(self.bytes).map_err(|_| "what was typed is no UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[u8]) -> Result<String, &'static str> {
        let mut line = TypedLine::default();
        let end = keys.iter().position(|byte| !line.push_key(*byte));
        assert!(end.is_none_or(|end| end + 1 == keys.len()), "{keys:?}");
        line.into_text()
    }

    #[test]
    fn a_line_is_the_remaining_text_at_enter() {
        let text = |keys: &str| typed(keys.as_bytes()).unwrap();
        assert_eq!(text("s3cret\r"), "s3cret");
        assert_eq!(text("a b\tc\n"), "a b\tc");
        assert_eq!(text("aé\x7fb\x08c\n"), "ac");
        assert_eq!(text("\x7fwrong\x15right\n"), "right");
        assert_eq!(text("a\x1b[D\x1bOA\x1b[1;5Cb\x01\n"), "ab");
        assert_eq!(text("\x1b\n"), "");
        assert_eq!(text("x\x04"), "x");
    }

    #[test]
    fn a_line_has_a_bound() {
        let long = vec![b'x'; LINE_MAX];
        assert_eq!(typed(&long).unwrap().len(), LINE_MAX);
        assert!(typed(&vec![b'x'; 3 * LINE_MAX]).is_err());
        assert!(typed(b"\xff\n").is_err());
    }
}
