//! `mgp up`, `mgp down` and `mgp demo`: starts and stops the kernel, and prints how it is reached.

pub(super) mod backup;
pub(super) mod service;

use std::env;
use std::io::IsTerminal;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;

use listenfd::ListenFd;
use serde_json::json;

use crate::cli::args::{self, LogLineFormat};
use crate::cli::client::{CliContext, background};
use crate::cli::failure::{Absence, Failure};
use crate::cli::print::{report, say};
use crate::config::named_secrets::KernelLookup;
use crate::config::{self, LogFormat};
use crate::demo;
use crate::kernel::{self, OpenDoors, UpOptions, user_environment, witnessed};

/// Accepts a file of the data folder as it is.
pub(super) fn accept(context: &CliContext, typed: &args::Accept) -> Result<(), Failure> {
    let loaded = config::load(&context.look_up, &|_| None, None);
    let loaded = loaded.map_err(|e| Failure::Other(e.to_string()))?;
    let data_dir = context.data_dir(&loaded.kernel)?;
    let file = &*typed.file;
    if !data_dir.is_dir() {
        let data_dir = data_dir.display();
        return Err(Failure::Other(format!(
            "{data_dir} is no data folder; name it with --data-dir"
        )));
    }
    let _lock = kernel::lock::take(&data_dir).map_err(Failure::Other)?;
    let accepted = witnessed::accept(&data_dir, file).map_err(Failure::Other)?;
    if context.json {
        return say(json!({"file": file, "accepted": accepted}));
    }
    match accepted {
        true => say(format_args!(
            "{file} is accepted as it is; `mgp up` starts the kernel"
        )),
        false => say(format_args!(
            "{file} has no witness: nothing is to be accepted"
        )),
    }
}

/// Runs the kernel in the foreground.
pub(super) fn here(context: &CliContext, typed: &args::Up) -> Result<(), Failure> {
    let kernel = config::load(&context.look_up, &|_| None, None).map(|loaded| loaded.kernel);
    user_environment::restore(&context.data_dir(&kernel.unwrap_or_default())?);
    context.tell_untrusted();
    let options = options(context, typed.log_format)?;
    let (data_dir, opened) = (options.data_dir.clone(), options.opened);
    let options = UpOptions {
        opened: Box::new(move |doors| {
            user_environment::store(&data_dir);
            opened(doors);
        }),
        ..options
    };
    kernel::run(options).map_err(Failure::Other)
}

/// A kernel with the configuration of this context, whose problems are told.
pub(super) fn options(
    context: &CliContext,
    log_format: Option<LogLineFormat>,
) -> Result<UpOptions, Failure> {
    let lookup = KernelLookup::of(&context.look_up);
    let mut loaded = config::load_with(&context.look_up, &lookup, None)
        .map_err(|e| Failure::Other(e.to_string()))?;
    match log_format {
        Some(LogLineFormat::Text) => loaded.kernel.log.format = LogFormat::Text,
        Some(LogLineFormat::Json) => loaded.kernel.log.format = LogFormat::Json,
        None => {}
    }
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
    let (socket, listener) = match handed_over()? {
        Some((socket, listener)) => (socket, Some(listener)),
        None => (context.own_socket(), None),
    };
    Ok(UpOptions {
        socket,
        listener,
        data_dir: context.data_dir(&loaded.kernel)?,
        named: context.told_data_dir().is_some(),
        record_folders: context.record_folders(),
        look_up: Some(context.look_up.clone()),
        loaded,
        ends_with_stdin: false,
        opened: Box::new(|doors| report(in_words(doors))),
    })
}

/// The socket that the service manager listens on and has handed over to this process, with its path.
fn handed_over() -> Result<Option<(PathBuf, UnixListener)>, Failure> {
    let mut sockets = ListenFd::from_env();
    if sockets.len() > 1 {
        return Err(Failure::Other(format!(
            "the service manager handed over {} sockets, and the kernel has one: leave one ListenStream= in mgp.socket",
            sockets.len()
        )));
    }
    if sockets.len() == 0 {
        return Ok(None);
    }
    let wrong = |why: &str| Failure::Other(format!("the socket of the service manager {why}"));
    let taken = sockets.take_unix_listener(0);
    let listener = taken.map_err(|e| wrong(&format!("cannot be used: {e}")))?;
    let listener = listener.ok_or_else(|| wrong("is none"))?;
    let address = listener.local_addr()?;
    let path = address.as_pathname().ok_or_else(|| wrong("has no path"))?;
    Ok(Some((path.to_owned(), listener)))
}

/// Starts the kernel unless one runs.
pub(super) fn detached(context: &CliContext) -> Result<(), Failure> {
    let status = match context.status()? {
        Some(status) => status,
        None => {
            context.tell_untrusted();
            background::start(context)?
        }
    };
    match context.json {
        true => say(serde_json::to_string(&status).expect("a status is always JSON")),
        false => {
            let pid = status.pid;
            say(format_args!(
                "the kernel is up (process {pid}; `mgp down` ends it)"
            ))
        }
    }
}

/// Ends the running kernel, and waits until it is gone.
pub(super) fn down(context: &CliContext) -> Result<(), Failure> {
    let Some(running) = context.status()? else {
        return Err(Failure::NotRunning(Absence::At(context.socket())));
    };
    background::stop(context, &running)?;
    let pid = running.pid;
    match context.json {
        true => say(json!({ "stopped": pid })),
        false => say(format_args!("the kernel (process {pid}) has stopped")),
    }
}

fn in_words(doors: &OpenDoors) -> String {
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
pub(super) fn demo(context: &CliContext) -> Result<(), Failure> {
    let program = env::current_exe()?;
    let demo = demo::config(&program)?;
    let socket = context
        .named_socket
        .clone()
        .unwrap_or_else(|| demo.socket());
    let data_dir = demo.data_dir();
    let there = context.at(socket.clone());
    let opened = move |doors: &OpenDoors| {
        let greeting = demo::greeting(&program, doors);
        thread::spawn(move || {
            // The lines work from the moment they are read.
            background::wait_while(&there, &["registered", "connecting"]);
            // Nobody may be reading; the kernel is up all the same.
            let _ = say(greeting);
        });
    };
    let options = UpOptions {
        loaded: demo.loaded,
        look_up: None,
        socket,
        listener: None,
        data_dir,
        named: true,
        record_folders: Vec::new(),
        ends_with_stdin: false,
        opened: Box::new(opened),
    };
    let outcome = kernel::run(options).map_err(Failure::Other);
    demo.folder.close()?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::OpenHttpDoor;

    #[test]
    fn the_doors_are_told_and_the_token_is_not() {
        let doors = OpenDoors {
            socket: "/run/mgp.sock".into(),
            http: Some(OpenHttpDoor {
                address: "127.0.0.1:7332".parse().unwrap(),
                secure: false,
                token: Some("s3cret".into()),
                token_file: Some("/data/token".into()),
            }),
        };
        let text = in_words(&doors);
        assert_eq!(
            text,
            "the kernel is up; socket /run/mgp.sock, http://127.0.0.1:7332/mcp (token in /data/token)"
        );
        assert!(!format!("{doors:?}").contains("s3cret"));
    }
}
