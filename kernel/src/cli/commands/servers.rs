//! `mgp servers list|start|stop|restart`, and the dispatch of other commands about servers.

mod add;
pub(super) mod config_file;
pub(super) mod connect;
pub(super) mod export;
pub(super) mod import;
mod info;
pub(super) mod login;
mod logs;
mod pins;
mod registry;
mod remove;
mod scan;
mod shown_secrets;
mod start_progress;
pub(super) mod state;
pub(super) mod stored_secrets;
mod supplied_values;
mod update;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::servers::{List, Restart, Server, Start, Stop};
use serde::Deserialize;
use serde_json::json;

use crate::cli::args::{Add, RestartServer, Servers};
use crate::cli::client::{CliContext, ProgressLine, parse_result};
use crate::cli::commands::tools::unavailable_nodes::hidden_shares;
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;
use start_progress::{StartMode, start_and_watch};
use state::{CONNECTED, STOPPED, report_state};

/// Answer of `mgp/servers/list`.
#[derive(Deserialize)]
pub(super) struct ServerList {
    pub(super) servers: Vec<Server>,
}

pub(super) fn run(context: &CliContext, typed: Servers) -> Result<(), Failure> {
    match typed {
        Servers::List => list(context),
        Servers::Search(typed) => registry::search(context, &typed),
        Servers::Add(typed) if is_registry_name(&typed) => registry::add(context, &typed),
        Servers::Add(typed) => add::add(context, &typed),
        Servers::Remove(typed) => remove::remove(context, &typed.id),
        Servers::Start(typed) => start(context, &typed.id),
        Servers::Stop(typed) => stop(context, &typed.id),
        Servers::Restart(typed) => restart(context, &typed),
        Servers::Update(typed) => update::update(context, &typed),
        Servers::Outdated => update::list_outdated(context),
        Servers::Show(typed) => info::show(context, &typed.id),
        Servers::Logs(typed) => logs::show(context, typed),
        Servers::Pins(typed) => pins::list(context, &typed.id),
        Servers::Scan(typed) => scan::run(context, &typed.id),
    }
}

/// Adds a server that this program started itself, without further options.
pub(super) fn add_program(
    context: &CliContext,
    id: &str,
    command: Vec<String>,
    project: bool,
) -> Result<(), Failure> {
    let typed = Add {
        id: id.to_owned(),
        command,
        project,
        ..Add::default()
    };
    add::add(context, &typed)
}

/// Whether this is a name of the registry without a command or URL.
fn is_registry_name(typed: &Add) -> bool {
    let is_described =
        !typed.command.is_empty() || typed.url.is_some() || typed.connector.is_some();
    registry::is_registry_name(&typed.id) && !is_described
}

fn list(context: &CliContext) -> Result<(), Failure> {
    let (answer, hidden) = context.with_kernel(async |client| {
        let doing = "asking the kernel";
        let answer = client.call(List::METHOD, &json!({}), doing).await?;
        let ServerList { servers } = parse_result(&answer)?;
        let listed: Vec<String> = servers.into_iter().map(|server| server.id).collect();
        let hidden = hidden_shares(client, &listed).await?;
        Ok((answer, hidden))
    })?;
    context.print_answer(&answer, |ServerList { servers }| {
        for line in &hidden {
            print_error(sanitize_line(line));
        }
        if servers.is_empty() && !hidden.is_empty() {
            return print_line("no servers of this node");
        }
        if servers.is_empty() {
            return print_line("no servers yet: `mgp servers add --help` shows how to add one");
        }
        let makers: String = servers.iter().filter_map(registered_by).collect();
        let sandboxes: String = servers.iter().filter_map(sandbox_summary).collect();
        print_line(format!(
            "{}{makers}{sandboxes}",
            state::state_table(&servers)
        ))
    })
}

/// Who registered a server that is in no file.
fn registered_by(server: &Server) -> Option<String> {
    let maker = server.registered_by.as_deref()?;
    Some(format!(
        "\n\n{} was registered by {}",
        sanitize_line(&server.id),
        sanitize_line(maker)
    ))
}

/// The restrictions of a sandboxed server.
fn sandbox_summary(server: &Server) -> Option<String> {
    let sandbox = server.sandbox.as_ref()?;
    let mut text = format!("\n\nsandbox of {}", sanitize_line(&server.id));
    let kinds = [
        ("holds", &sandbox.enforced),
        ("NOT HELD", &sandbox.missing),
        ("note", &sandbox.notes),
    ];
    for (kind, lines) in kinds {
        for line in lines {
            text += &format!("\n  {kind:<8}  {}", sanitize_line(line));
        }
    }
    Some(text)
}

fn start(context: &CliContext, id: &str) -> Result<(), Failure> {
    let server = start_and_watch(context, Start::METHOD, "starting", id, StartMode::Plain)?;
    report_state(context, &server, CONNECTED)
}

fn stop(context: &CliContext, id: &str) -> Result<(), Failure> {
    let params = json!({ "id": id });
    let doing = format!("stopping {id}");
    let answer =
        context.call_about_server(id, Stop::METHOD, &params, &mut ProgressLine::new(doing))?;
    report_state(context, &parse_result(&answer)?, STOPPED)
}

fn restart(context: &CliContext, typed: &RestartServer) -> Result<(), Failure> {
    let how = if typed.rolling {
        StartMode::Rolling
    } else {
        StartMode::Plain
    };
    let server = start_and_watch(context, Restart::METHOD, "restarting", &typed.id, how)?;
    if let Some(why) = server.rolling.as_deref().filter(|_| typed.rolling) {
        return Err(Failure::Other(format!(
            "{}: {}",
            typed.id,
            sanitize_line(why)
        )));
    }
    report_state(context, &server, CONNECTED)
}
