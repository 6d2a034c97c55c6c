//! A connection to the kernel with an opened endpoint, before client input is forwarded.

use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use mgp_platform::peer;
use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::door;
use socket2::{Domain, SockAddr, Socket, Type};

use super::line_reader::read_line;
use crate::cli::client::{
    CliContext, ConnectRetries, POLL_INTERVAL, ResponseTimer, backlog_is_full, check_owner,
    connect_failure, parse_error,
};
use crate::cli::failure::Failure;

/// Longest answer to `mgp/door/open`, in bytes.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// Opens a connection and its endpoint. Retries if the kernel closes it without an answer.
pub(super) fn open(
    context: &CliContext,
    of: Option<u32>,
    open_params: &door::Open,
) -> Result<UnixStream, Failure> {
    let mut retries = ConnectRetries::new();
    loop {
        let (mut socket, uid, silence) = connect(context, of)?;
        // A model behind an MCP client is no operator, whoever started the client. At another user's kernel its
        // configuration decides the identity.
        let own = uid == nix::unistd::geteuid().as_raw();
        let local = || own.then(|| AgentId::LOCAL.to_owned());
        let open = door::Open {
            server: open_params.server.clone(),
            set: open_params.set.clone(),
            agent: open_params.agent.clone().or_else(local),
            folder: open_params.folder.clone(),
        };
        match open_endpoint(&mut socket, &open, silence) {
            Ok(()) => return Ok(socket),
            Err(Failure::ConnectionClosed) if retries.next_attempt() => {
                thread::sleep(ConnectRetries::RETRY_INTERVAL)
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// The connection, and the uid of its peer: this user, root, or the named one.
fn connect(
    context: &CliContext,
    of: Option<u32>,
) -> Result<(UnixStream, u32, ResponseTimer), Failure> {
    let path = &context.running_socket()?;
    let stream = match connect_with_timeout(path) {
        Err(e) if backlog_is_full(&e) => {
            let mut silence = ResponseTimer::start(path, context.data_dir_holder());
            loop {
                silence.check()?;
                match connect_with_timeout(path) {
                    Err(e) if backlog_is_full(&e) => {}
                    connected => break connected,
                }
            }
        }
        connected => connected,
    };
    let stream = stream.map_err(|e| connect_failure(&e, path))?;
    let peer = peer::credentials(&stream)?;
    if of != Some(peer.uid) {
        check_owner(peer.uid, path)?;
    }
    let silence = ResponseTimer::start(path, peer.pid);
    Ok((stream, peer.uid, silence))
}

/// Connects within [`POLL_INTERVAL`]; [`backlog_is_full`] if the connection is not accepted.
fn connect_with_timeout(path: &Path) -> io::Result<UnixStream> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(POLL_INTERVAL))?;
    loop {
        match socket.connect(&address) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            connected => break connected?,
        }
    }
    socket.set_write_timeout(None)?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}

/// Opens the endpoint, without passing the answer to the client.
fn open_endpoint(
    socket: &mut UnixStream,
    open: &door::Open,
    mut silence: ResponseTimer,
) -> Result<(), Failure> {
    let params = serde_json::to_string(open).expect("params are always JSON");
    let mut request = jsonrpc::request("0", door::Open::METHOD, Some(&params));
    request.push(b'\n');
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    socket.write_all(&request).map_err(to_connection_failure)?;
    let line = read_line(socket, RESPONSE_BYTES_MAX, |e| {
        let silent = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
        if silent.contains(&e.kind()) {
            silence.check()
        } else {
            Err(to_connection_failure(e))
        }
    })?;
    let line = line
        .ok_or_else(|| Failure::Other("the kernel's answer to mgp/door/open is too long".into()))?;
    socket.set_read_timeout(None)?;
    match jsonrpc::parse(&line) {
        Ok(Message::Response { outcome: Ok(_), .. }) => Ok(()),
        Ok(Message::Response {
            outcome: Err(error),
            ..
        }) => Err(parse_error(error)),
        Ok(Message::Request { .. } | Message::Notification { .. }) | Err(_) => Err(Failure::Other(
            "the kernel answered mgp/door/open with something else".into(),
        )),
    }
}

/// A reset connection counts as closed.
fn to_connection_failure(error: io::Error) -> Failure {
    let cut = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    if cut.contains(&error.kind()) {
        Failure::ConnectionClosed
    } else {
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Read};

    use super::*;

    #[test]
    fn the_endpoint_is_opened_before_client_input_is_forwarded() {
        let (kernel, mut ours) = UnixStream::pair().unwrap();
        let kernel = thread::spawn(move || {
            let mut reader = io::BufReader::new(&kernel);
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            (&kernel)
                .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\nrest")
                .unwrap();
            line
        });
        let open = door::Open {
            server: Some("files".into()),
            set: None,
            agent: None,
            folder: None,
        };
        let silence = ResponseTimer::start(Path::new("none"), None);
        open_endpoint(&mut ours, &open, silence).unwrap();
        let want =
            r#"{"jsonrpc":"2.0","id":0,"method":"mgp/door/open","params":{"server":"files"}}"#;
        assert_eq!(kernel.join().unwrap().trim_end(), want);
        let mut rest = String::new();
        ours.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "rest");
    }
}
