//! Resumes a conversation at another kernel: repeats the handshake, and consumes the answers.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mgp_protocol::jsonrpc::RequestId;
use mgp_protocol::jsonrpc::partial_message::PartialMessage;

use super::handshake::{Handshake, NegotiatedSession};
use super::line_reader::read_line;
use crate::cli::failure::Failure;

/// Limit for each answer of a kernel.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer, in bytes: an `initialize` result with long instructions.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Repeats the handshake to a new kernel; `others` receives its other messages. An unanswered `initialize` is only
/// sent: the answer is passed to the client.
///
/// # Errors
/// [`Failure::ConnectionClosed`] if this kernel is lost, too; else why the conversation cannot continue.
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
            // A subscription to a removed resource fails; the client learns that lists changed.
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

/// The answer to a request; preceding messages go to the client.
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
