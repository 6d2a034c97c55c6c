//! A scripted MCP server that shares no code with the kernel, so that a bug there cannot hide here.
//!
//! It offers every tool, prompt and resource that the official conformance suite asks for, in both
//! eras (the `initialize` handshake up to 2025-11-25, and 2026-07-28), over stdio, Streamable HTTP
//! and HTTP+SSE. On top of that it misbehaves on demand and serves as the upstream of benchmarks.

mod board;
mod call;
mod catalog;
mod clock;
mod content;
mod echo;
mod http;
mod jobs;
mod lists;
mod message;
mod methods;
mod mgp;
mod mishap;
mod modern;
mod options;
mod outlet;
mod paging;
mod prompts;
mod random;
mod received;
mod resources;
mod rounds;
mod running;
mod seal;
mod server;
mod session;

mod stdio;
mod subscriptions;
mod tally;
mod tasks;
mod tools;
mod work;

use std::process::ExitCode;
use std::sync::Arc;

pub use lists::ListTroubles;
pub use mgp::MgpWords;
pub use options::{CursorLoop, HttpWays, Misstart, Options, Spoken, Switch};
use server::Server;

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
