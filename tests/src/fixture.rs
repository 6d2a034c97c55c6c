//! A scripted MCP server that shares no code with the kernel, so that a bug there cannot hide here.
//!
//! It offers every tool, prompt and resource that the official conformance suite asks for, in both
//! eras (the `initialize` handshake up to 2025-11-25, and 2026-07-28), over stdio, Streamable HTTP
//! and HTTP+SSE. On top of that it misbehaves on demand and serves as the upstream of benchmarks.

mod board;
mod clients;
mod clock;
mod content;
mod doors;
mod envelope;
mod message;
mod options;
mod outlet;
mod questions;
mod random;
mod rounds;
mod server;
mod tally;
mod tasks;

use std::process::ExitCode;
use std::sync::Arc;

use doors::{http, mishap, stdio};
pub use options::lists::ListTroubles;
pub use options::mcpl::McplWords;
pub use options::mgp::MgpWords;
pub use options::{CursorLoop, HttpWays, Misstart, Options, Spoken, Switch};
use server::{Server, tools};

/// Reads the command line of this process; `--help` also lists the tools.
#[must_use]
pub fn options() -> Options {
    Options::from_command_line(tools::listing())
}

/// Runs the server that `options` describe until its client leaves or it is told to end.
pub fn main(options: &Options) -> ExitCode {
    if let Some(seconds) = options.sleep {
        return mishap::sleep(seconds, options.setsid);
    }
    if let Some(code) = options.misstart.exit_at_start {
        eprintln!("fixture: exits at start with {code}, as told");
        return ExitCode::from(code);
    }
    let server = Server::new(options.clone());
    let ended = match options.http {
        Some(port) if !options.stdio => http::run(&server, port),
        Some(_) | None => stdio::run(&Arc::clone(&server)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fixture: {error}");
            ExitCode::FAILURE
        }
    }
}
