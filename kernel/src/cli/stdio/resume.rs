//! Taking a conversation up at another kernel: what opened it is said again, and the answers stay here.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::jsonrpc::partial_message::PartialMessage;

use super::handshake::{Handshake, NegotiatedSession};
use super::line_reader::read_line;
use crate::cli::failure::Failure;

/// How long a kernel may take for each answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read, in bytes: a welcome with long instructions.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Says to a new kernel what opened the conversation; `others` takes what it says besides its answers. An
/// `initialize` that the old one did not answer is only said: its answer is the client's.
///
/// # Errors
/// [`Failure::ConnectionClosed`] when this kernel has gone, too; else why the conversation cannot go on there.
pub(super) fn replay_handshake(
    socket: &UnixStream,
    handshake: &Handshake,
    mut others: impl FnMut(&[u8]),
) -> Result<(), Failure> {
    let Some((id, line)) = handshake.initialize() else {
        return Ok(());
    };
    send_line(socket, line)?;
    let Some(before) = handshake.negotiated() else {
        return Ok(());
    };
    socket.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let answer = read_response(id, socket, &mut others)?;
    match NegotiatedSession::parse(&answer) {
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
    for (id, line) in handshake.lines_after_initialize() {
        send_line(socket, line)?;
        if let Some(id) = id {
            // A subscription to what is no longer there ends so; the client is told that lists changed.
            read_response(id, socket, &mut others)?;
        }
    }
    Ok(socket.set_read_timeout(None)?)
}

fn send_line(mut socket: &UnixStream, line: &[u8]) -> Result<(), Failure> {
    let newline: &[u8] = if line.ends_with(b"\n") { b"" } else { b"\n" };
    let said = socket
        .write_all(line)
        .and_then(|()| socket.write_all(newline));
    said.map_err(|_| Failure::ConnectionClosed)
}

/// The answer to a request; what comes before it is the client's.
fn read_response(
    id: &RequestId,
    socket: &UnixStream,
    others: &mut impl FnMut(&[u8]),
) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    while Instant::now() < deadline {
        let line = read_line(socket, RESPONSE_BYTES_MAX, |_| {
            Err(Failure::ConnectionClosed)
        })?;
        let line = line.ok_or_else(|| {
            Failure::Other(format!(
                "an answer of more than {RESPONSE_BYTES_MAX} bytes is too long"
            ))
        })?;
        let seen = PartialMessage::scan(&line);
        if seen.is_response() && seen.id().as_ref() == Some(id) {
            return Ok(line);
        }
        others(&line);
    }
    Err(Failure::ConnectionClosed)
}
