//! `mgp up` and `mgp demo`: what the kernel is started with, and what is said once its doors are
//! open. The kernel itself is passed in.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use mgp_discovery::config::LookUp;

use super::context::Context;
use super::detach;
use super::failure::Failure;
use super::output::{report, say};
use crate::config::{self, LoadedConfig};
use crate::demo;

/// The parts of the program the command line starts but does not hold.
pub struct Parts {
    /// Runs the kernel until it is stopped; its error is for people.
    pub up: fn(UpOptions) -> Result<(), String>,
    /// Runs the guard of the kernel's children on stdin.
    pub guard: fn() -> ExitCode,
    /// Runs the model on stdin and stdout.
    pub embed: fn() -> ExitCode,
    /// Becomes a server in its sandbox.
    pub sandbox: fn(&[OsString]) -> ExitCode,
}

/// What the kernel is started with.
pub struct UpOptions {
    /// The configuration, usable and with its problems told.
    pub loaded: LoadedConfig,
    /// How to look it up again when a file changes; `None` when there are no files.
    pub look_up: Option<LookUp>,
    /// Where the socket goes.
    pub socket: PathBuf,
    /// The folder for what lasts; it may not exist yet.
    pub data_dir: PathBuf,
    /// Whether somebody told that folder.
    pub named: bool,
    /// Where the running kernel is recorded beside that folder, in the order of looking; the last is
    /// below the home. Empty for a kernel that only those find who know where it is.
    pub record_folders: Vec<PathBuf>,
    /// To be called once, when every door is open.
    pub opened: Box<dyn FnOnce(&Doors) + Send>,
}

/// The doors of a kernel that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doors {
    /// The owner's socket.
    pub socket: PathBuf,
    /// The HTTP door, when there is one.
    pub http: Option<HttpDoor>,
}

/// The HTTP door.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpDoor {
    /// Where it listens, with the port it really got.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub secure: bool,
    /// The operator's token, while the kernel knows it; never shown where a file holds it.
    pub token: Option<String>,
    /// The file that holds the token.
    pub token_file: Option<PathBuf>,
}

impl HttpDoor {
    /// The endpoint that shows everything.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}/mcp", self.address)
    }
}

impl std::fmt::Debug for HttpDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("HttpDoor")
            .field("url", &self.url())
            .field("token", &token)
            .field("token_file", &self.token_file)
            .finish()
    }
}

/// Runs the kernel in the foreground.
pub(super) fn up(context: &Context, parts: &Parts) -> Result<(), Failure> {
    context.tell_untrusted();
    let loaded = config::load(&context.look_up, &|name| env::var(name).ok(), None)
        .map_err(|e| Failure::Other(e.to_string()))?;
    for problem in &loaded.problems {
        report(problem.render(std::io::stderr().is_terminal()));
    }
    if !loaded.is_usable() {
        return Err(Failure::Other(
            "the configuration cannot be used as it is".into(),
        ));
    }
    if loaded.servers.is_empty() {
        report("no servers yet: `mgp servers add --help` shows how to add one");
    }
    if let Some(trouble) = context.socket_trouble() {
        report(format_args!("mgp: {trouble}"));
    }
    let options = UpOptions {
        socket: context.own_socket(),
        data_dir: context.data_dir(&loaded.kernel)?,
        named: context.told_data_dir().is_some(),
        record_folders: context.record_folders(),
        look_up: Some(context.look_up.clone()),
        loaded,
        opened: Box::new(|doors| report(told(doors))),
    };
    (parts.up)(options).map_err(Failure::Other)
}

fn told(doors: &Doors) -> String {
    let mut text = format!("the kernel is up; socket {}", doors.socket.display());
    if let Some(http) = &doors.http {
        text += &format!(", {}", http.url());
        if let Some(file) = &http.token_file {
            text += &format!(" (token in {})", file.display());
        }
    }
    text
}

/// Runs a kernel with the built-in server in a folder of its own.
pub(super) fn demo(context: &Context, parts: &Parts) -> Result<(), Failure> {
    let program = env::current_exe()?;
    let demo = demo::config(&program)?;
    let socket = context
        .named_socket
        .clone()
        .unwrap_or_else(|| demo.socket());
    let data_dir = demo.data_dir();
    let there = context.at(socket.clone());
    let opened = move |doors: &Doors| {
        let greeting = demo::greeting(&program, doors);
        thread::spawn(move || {
            // The lines work from the moment they are read.
            detach::wait_while(&there, &["registered", "connecting"]);
            // Nobody may be reading; the kernel is up all the same.
            let _ = say(greeting);
        });
    };
    let options = UpOptions {
        loaded: demo.loaded,
        look_up: None,
        socket,
        data_dir,
        named: true,
        record_folders: Vec::new(),
        opened: Box::new(opened),
    };
    let outcome = (parts.up)(options).map_err(Failure::Other);
    demo.folder.close()?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doors_are_told_and_the_token_is_not() {
        let doors = Doors {
            socket: "/run/mgp.sock".into(),
            http: Some(HttpDoor {
                address: "127.0.0.1:7332".parse().unwrap(),
                secure: false,
                token: Some("s3cret".into()),
                token_file: Some("/data/token".into()),
            }),
        };
        let text = told(&doors);
        assert_eq!(
            text,
            "the kernel is up; socket /run/mgp.sock, http://127.0.0.1:7332/mcp (token in /data/token)"
        );
        assert!(!format!("{doors:?}").contains("s3cret"));
    }
}
