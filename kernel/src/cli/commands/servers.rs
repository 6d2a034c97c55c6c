//! `mgp servers list|start|stop|restart`, and the way to the other commands about servers.

mod add;
pub(super) mod config_file;
pub(super) mod connect;
pub(super) mod export;
pub(super) mod import;
mod info;
pub(super) mod kept_secrets;
pub(super) mod login;
mod logs;
mod registry;
mod remove;
mod secrets;
mod starting;
pub(super) mod state;
mod update;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{List, Restart, Server, Start, Stop};
use serde::Deserialize;
use serde_json::json;

use crate::cli::args::{Add, Restarted, Servers};
use crate::cli::client::{CliContext, ProgressLine, read};
use crate::cli::commands::tools::away::hidden;
use crate::cli::failure::Failure;
use crate::cli::print::{report, say};
use crate::cli::words::plain;
use starting::{StartMode, watch};
use state::{CONNECTED, STOPPED, tell};

/// Answer of `mgp/servers/list`.
#[derive(Deserialize)]
pub(super) struct ListedServers {
    pub(super) servers: Vec<Server>,
}

pub(super) fn run(context: &CliContext, typed: Servers) -> Result<(), Failure> {
    match typed {
        Servers::List => list(context),
        Servers::Search(typed) => registry::search(context, &typed),
        Servers::Add(typed) if is_of_registry(&typed) => registry::add(context, &typed),
        Servers::Add(typed) => add::add(context, &typed),
        Servers::Remove(typed) => remove::remove(context, &typed.id),
        Servers::Start(typed) => start(context, &typed.id),
        Servers::Stop(typed) => stop(context, &typed.id),
        Servers::Restart(typed) => restart(context, &typed),
        Servers::Update(typed) => update::update(context, &typed),
        Servers::Outdated => update::outdated(context),
        Servers::Show(typed) => info::show(context, &typed.id),
        Servers::Logs(typed) => logs::show(context, typed),
    }
}

/// A name of the registry, and nothing that says how it is run.
fn is_of_registry(typed: &Add) -> bool {
    registry::is_name(&typed.id) && typed.command.is_empty() && typed.url.is_none()
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let (answer, hidden) = context.with_kernel(async |client| {
        let doing = "asking the kernel";
        let answer = client.ask(List::METHOD, &json!({}), doing).await?;
        let ListedServers { servers } = read(&answer)?;
        let listed: Vec<String> = servers.into_iter().map(|server| server.id).collect();
        let hidden = hidden(client, &listed).await?;
        Ok((answer, hidden))
    })?;
    context.show(&answer, |ListedServers { servers }| {
        for line in &hidden {
            report(plain(line));
        }
        if servers.is_empty() && !hidden.is_empty() {
            return say("no servers of this node");
        }
        if servers.is_empty() {
            return say("no servers yet: `mgp servers add --help` shows how to add one");
        }
        let makers: String = servers.iter().filter_map(maker).collect();
        let sandboxes: String = servers.iter().filter_map(sandbox).collect();
        say(format!("{}{makers}{sandboxes}", state::rows(&servers)))
    })
}

/// Who registered a server that stands in no file.
fn maker(server: &Server) -> Option<String> {
    let maker = server.registered_by.as_deref()?;
    Some(format!(
        "\n\n{} was registered by {}",
        plain(&server.id),
        plain(maker)
    ))
}

/// What holds a sandboxed server.
fn sandbox(server: &Server) -> Option<String> {
    let sandbox = server.sandbox.as_ref()?;
    let mut text = format!("\n\nsandbox of {}", plain(&server.id));
    let kinds = [
        ("holds", &sandbox.enforced),
        ("NOT HELD", &sandbox.missing),
        ("note", &sandbox.notes),
    ];
    for (kind, lines) in kinds {
        for line in lines {
            text += &format!("\n  {kind:<8}  {}", plain(line));
        }
    }
    Some(text)
}

fn start(context: &CliContext, id: &str) -> Result<(), Failure> {
    let server = watch(context, Start::METHOD, "starting", id, StartMode::Plain)?;
    tell(context, &server, CONNECTED)
}

fn stop(context: &CliContext, id: &str) -> Result<(), Failure> {
    let params = json!({ "id": id });
    let doing = format!("stopping {id}");
    let answer = context.ask_about(id, Stop::METHOD, &params, &mut ProgressLine::of(doing))?;
    tell(context, &read(&answer)?, STOPPED)
}

fn restart(context: &CliContext, typed: &Restarted) -> Result<(), Failure> {
    let how = match typed.rolling {
        true => StartMode::Rolling,
        false => StartMode::Plain,
    };
    let server = watch(context, Restart::METHOD, "restarting", &typed.id, how)?;
    if let Some(why) = server.rolling.as_deref().filter(|_| typed.rolling) {
        return Err(Failure::Other(format!("{}: {}", typed.id, plain(why))));
    }
    tell(context, &server, CONNECTED)
}
