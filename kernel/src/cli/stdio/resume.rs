//! Taking a conversation up at another kernel: what opened it is said again, and the answers stay here.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::jsonrpc::torn::Glance;

use super::handshake::{Handshake, Negotiated};
use super::lines::read_line;
use crate::cli::failure::Failure;

/// How long a kernel may take for each answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is read, in bytes: a welcome with long instructions.
const LONGEST: usize = 1 << 20;

/// Says to a new kernel what opened the conversation; `others` takes what it says besides its answers. An
/// `initialize` that the old one did not answer is only said: its answer is the client's.
///
/// # Errors
/// [`Failure::Gone`] when this kernel has gone, too; else why the conversation cannot go on there.
pub(super) fn repeat(
    socket: &UnixStream,
    handshake: &Handshake,
    mut others: impl FnMut(&[u8]),
) -> Result<(), Failure> {
    let Some((id, line)) = handshake.initialize() else {
        return Ok(());
    };
    say(socket, line)?;
    let Some(before) = handshake.negotiated() else {
        return Ok(());
    };
    socket.set_read_timeout(Some(PATIENCE))?;
    let answer = answer_to(id, socket, &mut others)?;
    match Negotiated::read(&answer) {
        Some(now) if now.version == before.version => {}
        Some(now) => {
            return Err(Failure::Other(format!(
                "the kernel was replaced by one that speaks MCP {} where {} was agreed; connect again",
                now.version, before.version
            )));
        }
        None => {
            let said = String::from_utf8_lossy(&answer).into_owned();
            return Err(Failure::Other(format!(
                "the kernel was replaced by one that refuses this client: {}",
                said.trim_end()
            )));
        }
    }
    for (id, line) in handshake.after_initialize() {
        say(socket, line)?;
        if let Some(id) = id {
            // A subscription to what is no longer there ends so; the client is told that lists changed.
            answer_to(id, socket, &mut others)?;
        }
    }
    Ok(socket.set_read_timeout(None)?)
}

fn say(mut socket: &UnixStream, line: &[u8]) -> Result<(), Failure> {
    let newline: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
    let said = socket
        .write_all(line)
        .and_then(|()| socket.write_all(newline));
    said.map_err(|_| Failure::Gone)
}

/// The answer to a request; what comes before it is the client's.
fn answer_to(
    id: &RequestId,
    socket: &UnixStream,
    others: &mut impl FnMut(&[u8]),
) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let line = read_line(socket, LONGEST, |_| Err(Failure::Gone))?;
        let line = line.ok_or_else(|| {
            Failure::Other(format!(
                "an answer of more than {LONGEST} bytes is too long"
            ))
        })?;
        let seen = Glance::at(&line);
        if seen.answers() && seen.id().as_ref() == Some(id) {
            return Ok(line);
        }
        others(&line);
    }
    Err(Failure::Gone)
}
