//! `mgp stdio`: lines from stdin to the kernel and back, as they are, from one kernel to the next. Nothing
//! but protocol reaches stdout (MCP-069).

mod greeting;
mod ledger;
mod lines;
mod pump;
mod resume;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

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
use super::failure::{Absence, Failure};
use super::output::report;
use super::words::plain;
use crate::record::Record;
use pump::{Kernels, Waiting};

/// Longest answer to `mgp/door/open`, in bytes.
const LONGEST_HELLO: usize = 64 << 10;
/// How long a request may wait for a kernel to come back: a restart with its servers takes a few
/// seconds, and clients wait a minute for most answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one is waited for while nobody asks for anything: an upgrade.
const IDLE: Duration = Duration::from_secs(600);
/// How long others have to start a kernel that fell, before it is started here: a service manager.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two looks.
const PACE: Duration = Duration::from_millis(100);

pub(super) fn join(context: &Context, stdio: command::Stdio) -> Result<(), Failure> {
    let of = stdio.of.as_deref().map(user).transpose()?;
    context.tell_untrusted();
    let asked = door::Open {
        server: stdio.server,
        agent: stdio.agent,
    };
    let mut ways = Ways {
        context: context.clone(),
        of,
        asked,
        joined: None,
    };
    let socket = match ways.enter() {
        Err(Failure::NotRunning(_)) if of.is_none() => {
            ways.start()?;
            ways.enter()?
        }
        entered => entered?,
    };
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    pump::run(socket, input, output, ways)
}

/// How kernels are got to.
struct Ways {
    context: Context,
    of: Option<u32>,
    asked: door::Open,
    /// The kernel that was got to last.
    joined: Option<Record>,
}

impl Ways {
    fn enter(&mut self) -> Result<UnixStream, Failure> {
        let socket = enter(&self.context, self.of, &self.asked)?;
        let here = self.context.socket();
        self.joined = self.context.running().filter(|it| it.socket == here);
        Ok(socket)
    }

    /// Starts a kernel, says what it runs on, and waits for its servers.
    fn start(&self) -> Result<(), Failure> {
        let status = detach::start(&self.context)?;
        let files = match status.config_files.as_slice() {
            [] => "without a configuration".to_owned(),
            files => format!("with {}", files.join(" and ")),
        };
        report(plain(&format!(
            "mgp: a kernel was started (process {}) {files}; its data is in {}",
            status.pid, status.data_dir
        )));
        Ok(())
    }
}

impl Kernels for Ways {
    /// Waits for a kernel that somebody starts. One that fell is started here, as the first one was; one
    /// that was stopped is not.
    fn next(&mut self, waiting: &Waiting<'_>) -> Result<UnixStream, Failure> {
        let begun = Instant::now();
        let mut may_start = self.of.is_none();
        loop {
            match self.enter() {
                Ok(socket) => return Ok(socket),
                Err(Failure::NotRunning(_) | Failure::Gone) => {}
                Err(failure) => return Err(failure),
            }
            let asked_for = waiting
                .since()
                .is_some_and(|since| since.elapsed() > PATIENCE);
            if waiting.is_vain() || asked_for || begun.elapsed() > IDLE {
                return Err(Failure::NotRunning(Absence::Stopped(self.context.socket())));
            }
            let fallen = || self.joined.as_ref().is_some_and(Record::has_fallen);
            if may_start && begun.elapsed() > GRACE && fallen() {
                may_start = false;
                self.start()?;
            }
            thread::sleep(PACE);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;

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
