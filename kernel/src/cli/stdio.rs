//! `mgp stdio`: bytes from stdin to the kernel and back. Nothing is parsed on the way, and nothing
//! but the kernel's own lines reaches stdout (MCP-069).

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mgp_protocol::ids::AgentId;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::door;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, setsockopt, socket,
    sockopt::{PeerCredentials, SendTimeout},
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::User;

use super::client::{LOOK, Looks, Silence, is_crowded, no_connection, refused, trusted};
use super::command;
use super::context::Context;
use super::detach;
use super::failure::Failure;

/// Longest answer to `mgp/door/open`, in bytes.
const LONGEST_HELLO: usize = 64 << 10;
/// How long the kernel may go on answering after stdin has ended.
const LAST_WORDS: Duration = Duration::from_secs(10);

pub(super) fn join(context: &Context, stdio: command::Stdio) -> Result<(), Failure> {
    let of = stdio.of.as_deref().map(user).transpose()?;
    context.tell_untrusted();
    let asked = door::Open {
        server: stdio.server,
        agent: stdio.agent,
    };
    let socket = match enter(context, of, &asked) {
        Err(Failure::NotRunning(_)) if of.is_none() => {
            detach::start(context)?;
            detach::settled(context);
            enter(context, of, &asked)?
        }
        entered => entered?,
    };
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    pump(&socket, input, output)
}

/// A connection whose door is open. A kernel that closes it without a word is looked at again.
fn enter(context: &Context, of: Option<u32>, asked: &door::Open) -> Result<UnixStream, Failure> {
    let mut looks = Looks::new();
    loop {
        let (mut socket, uid, silence) = connect(context, of)?;
        // A model behind an MCP client is no operator, whoever started the client. At a kernel of
        // somebody else one is whom its configuration says.
        let own = uid == nix::unistd::geteuid().as_raw();
        let local = || own.then(|| AgentId::LOCAL.to_owned());
        let open = door::Open {
            server: asked.server.clone(),
            agent: asked.agent.clone().or_else(local),
        };
        match open_door(&mut socket, &open, silence) {
            Ok(()) => return Ok(socket),
            Err(Failure::Gone) if looks.again() => thread::sleep(Looks::PACE),
            Err(failure) => return Err(failure),
        }
    }
}

fn user(name: &str) -> Result<u32, Failure> {
    let found = User::from_name(name).map_err(io::Error::from)?;
    let uid = found.map(|user| user.uid.as_raw());
    uid.or_else(|| name.parse().ok())
        .ok_or_else(|| Failure::Other(format!("this machine has no user {name}")))
}

/// The connection, and the number of the user at its other end: this one, root, or the one named.
fn connect(context: &Context, of: Option<u32>) -> Result<(UnixStream, u32, Silence), Failure> {
    let path = &context.socket();
    let stream = match knock(path) {
        Err(e) if is_crowded(&e) => {
            let mut silence = Silence::of(path, context.holder());
            loop {
                silence.lasts()?;
                match knock(path) {
                    Err(e) if is_crowded(&e) => {}
                    knocked => break knocked,
                }
            }
        }
        knocked => knocked,
    };
    let stream = stream.map_err(|e| no_connection(&e, path))?;
    let peer = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?;
    if of != Some(peer.uid()) {
        trusted(peer.uid(), path)?;
    }
    let silence = Silence::of(path, Some(peer.pid()).filter(|pid| *pid > 0));
    Ok((stream, peer.uid(), silence))
}

/// Connects within [`LOOK`]; [`is_crowded`] when nobody takes the connection.
fn knock(path: &Path) -> io::Result<UnixStream> {
    let address = UnixAddr::new(path)?;
    let (unix, stream) = (AddressFamily::Unix, SockType::Stream);
    let knocking: OwnedFd = socket(unix, stream, SockFlag::SOCK_CLOEXEC, None)?;
    let millis = i64::try_from(LOOK.as_millis()).unwrap_or(i64::MAX);
    setsockopt(&knocking, SendTimeout, &TimeVal::milliseconds(millis))?;
    loop {
        match nix::sys::socket::connect(knocking.as_raw_fd(), &address) {
            Err(Errno::EINTR) => {}
            connected => break connected?,
        }
    }
    setsockopt(&knocking, SendTimeout, &TimeVal::zero())?;
    Ok(UnixStream::from(knocking))
}

/// Says which door is meant, and keeps the answer away from the client.
fn open_door(
    socket: &mut UnixStream,
    open: &door::Open,
    mut silence: Silence,
) -> Result<(), Failure> {
    let params = serde_json::to_string(open).expect("params are always JSON");
    let mut request = jsonrpc::request("0", door::Open::METHOD, Some(&params));
    request.push(b'\n');
    socket.set_read_timeout(Some(LOOK))?;
    socket.write_all(&request).map_err(ended)?;
    let line = read_line(socket, &mut silence)?;
    socket.set_read_timeout(None)?;
    match jsonrpc::parse(&line) {
        Ok(Message::Response { outcome: Ok(_), .. }) => Ok(()),
        Ok(Message::Response {
            outcome: Err(error),
            ..
        }) => Err(refused(error)),
        Ok(Message::Request { .. } | Message::Notification { .. }) | Err(_) => Err(Failure::Other(
            "the kernel answered mgp/door/open with something else".into(),
        )),
    }
}

/// A connection that was cut off is one that was closed.
fn ended(error: io::Error) -> Failure {
    let cut = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    match cut.contains(&error.kind()) {
        true => Failure::Gone,
        false => error.into(),
    }
}

/// Byte by byte, so that nothing of what follows is taken.
fn read_line(socket: &mut UnixStream, silence: &mut Silence) -> Result<Vec<u8>, Failure> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LONGEST_HELLO {
        match socket.read(&mut byte) {
            Ok(0) => return Err(Failure::Gone),
            Ok(_) if byte[0] == b'\n' => return Ok(line),
            Ok(_) => line.push(byte[0]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                silence.lasts()?;
            }
            Err(e) => return Err(ended(e)),
        }
    }
    Err(Failure::Other(
        "the kernel's answer to mgp/door/open is too long".into(),
    ))
}

/// Which side ended.
enum Ended {
    /// The client: no more input, or nobody reads the output.
    Client,
    Kernel,
}

/// Copies both ways until one side ends. The client's end is a good one (MCP-021).
fn pump(socket: &UnixStream, mut input: File, mut output: File) -> Result<(), Failure> {
    let (ended, ends) = mpsc::channel();
    let (mut writer, mut reader) = (socket.try_clone()?, socket.try_clone()?);
    let ended_too = ended.clone();
    thread::spawn(move || {
        let side = match copy(&mut input, &mut writer) {
            Ok(()) => Ended::Client,
            Err(_) => Ended::Kernel,
        };
        // The receiver is gone when the other side ended first.
        let _ = ended.send(side);
    });
    thread::spawn(move || {
        let side = match copy(&mut reader, &mut output) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Ended::Client,
            Ok(()) | Err(_) => Ended::Kernel,
        };
        let _ = ended_too.send(side);
    });
    match ends.recv().expect("a copier tells its end") {
        Ended::Kernel => Err(Failure::Gone),
        Ended::Client => {
            // The kernel may have closed it already.
            let _ = socket.shutdown(Shutdown::Write);
            let _ = ends.recv_timeout(LAST_WORDS);
            Ok(())
        }
    }
}

/// Copies until the end. Behind `dyn`, so that nothing is spliced: a splice that waits for more holds
/// the pipe, and the client at its other end is stuck in a read or write that must not block.
fn copy(reader: &mut dyn Read, writer: &mut dyn Write) -> io::Result<()> {
    io::copy(reader, writer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::os::fd::OwnedFd;

    fn pipe() -> (File, File) {
        let (reader, writer) = io::pipe().unwrap();
        (
            File::from(OwnedFd::from(reader)),
            File::from(OwnedFd::from(writer)),
        )
    }

    struct Joined {
        kernel: UnixStream,
        input: File,
        output: io::BufReader<File>,
        done: mpsc::Receiver<Result<(), Failure>>,
    }

    fn joined() -> Joined {
        let (kernel, ours) = UnixStream::pair().unwrap();
        let ((stdin, input), (output, stdout)) = (pipe(), pipe());
        let (tell, done) = mpsc::channel();
        thread::spawn(move || tell.send(pump(&ours, stdin, stdout)));
        Joined {
            kernel,
            input,
            output: io::BufReader::new(output),
            done,
        }
    }

    /// How long anything may take before it counts as broken.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// MCP-021, MCP-069: bytes pass as they are, and the end of stdin is a good end, after the last
    /// answer.
    #[test]
    fn bytes_pass_both_ways_until_stdin_ends() {
        let mut joined = joined();
        joined.input.write_all(b"{\"a\":1}\n{\"b\"").unwrap();
        let mut asked = [0; 12];
        joined.kernel.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"{\"a\":1}\n{\"b\"");
        drop(joined.input);
        assert_eq!(joined.kernel.read(&mut asked).unwrap(), 0);
        joined.kernel.write_all(b"{\"last\":1}\n").unwrap();
        drop(joined.kernel);
        let mut line = String::new();
        joined.output.read_line(&mut line).unwrap();
        assert_eq!(line, "{\"last\":1}\n");
        assert!(joined.done.recv_timeout(PATIENCE).unwrap().is_ok());
    }

    #[test]
    fn a_kernel_that_goes_away_is_a_failure() {
        let joined = joined();
        drop(joined.kernel);
        assert!(joined.done.recv_timeout(PATIENCE).unwrap().is_err());
    }

    #[test]
    fn a_client_that_goes_away_is_a_good_end() {
        let mut joined = joined();
        drop(joined.output);
        drop(joined.input);
        let _ = joined.kernel.write_all(b"{}\n");
        drop(joined.kernel);
        assert!(joined.done.recv_timeout(PATIENCE).unwrap().is_ok());
    }

    #[test]
    fn the_door_is_opened_before_the_client_is_heard() {
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
            agent: None,
        };
        let silence = Silence::of(Path::new("none"), None);
        open_door(&mut ours, &open, silence).unwrap();
        let want =
            r#"{"jsonrpc":"2.0","id":0,"method":"mgp/door/open","params":{"server":"files"}}"#;
        assert_eq!(kernel.join().unwrap().trim_end(), want);
        let mut rest = String::new();
        ours.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "rest");
    }
}
