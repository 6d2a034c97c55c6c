//! The command line: who carries out what was typed.
//!
//! Everything said to a running kernel goes over its socket as MCP and MGP; there is no second,
//! private way in.

mod access;
mod agents;
mod approvals;
mod arguments;
mod audit;
mod call;
mod client;
mod clients;
pub mod command;
mod content;
mod context;
mod detach;
mod entry;
mod failure;
mod find;
mod info;
mod log;
mod logs;
mod names;
mod output;
mod pages;
mod paste;
mod progress;
mod prompts;
mod question;
mod resources;
mod secrets;
mod servers;
mod starting;
mod status;
mod stdio;
mod table;
mod tools;
mod trust;
mod up;
mod words;

use std::process::ExitCode;

pub use command::Cli;
pub use failure::{Absence, Failure};
pub use up::{Doors, HttpDoor, Parts, UpOptions};

use command::reading::{Prompts, Resources};
use command::{Agents, Audit, Command, Servers, Tools};
use context::Context;

/// Carries out what was typed; the parts that are not the command line's are in `parts`.
#[must_use]
pub fn run(cli: Cli, parts: &Parts) -> ExitCode {
    let json = cli.options.json;
    if matches!(&cli.command, Command::Up(up) if up.own_session) {
        // A leader of a group has no session of its own to begin; then it stays where it is.
        let _ = nix::unistd::setsid();
    }
    let done = match cli.command {
        Command::Guard => return (parts.guard)(),
        Command::Sandbox { command } => return (parts.sandbox)(&command),
        Command::Embed => return (parts.embed)(),
        Command::DemoServer(server) => crate::demo::run(&server.root).map_err(Failure::from),
        command @ (Command::Up(_)
        | Command::Demo
        | Command::Stdio(_)
        | Command::Down
        | Command::Status
        | Command::Servers(_)
        | Command::Trust(_)
        | Command::Untrust(_)
        | Command::Agents(_)
        | Command::Tools(_)
        | Command::Resources(_)
        | Command::Prompts(_)
        | Command::Audit(_)
        | Command::Pending
        | Command::Approve(_)
        | Command::Deny(_)
        | Command::Grant(_)
        | Command::Revoke(_)
        | Command::Grants(_)
        | Command::Explain(_)) => Context::new(cli.options).and_then(|context| {
            let done = dispatch(&context, command, parts);
            done.map_err(|failure| context.explained(failure))
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell(json);
            failure.code().into()
        }
    }
}

fn dispatch(context: &Context, command: Command, parts: &Parts) -> Result<(), Failure> {
    match command {
        Command::Up(up) if up.detach => detach::up(context),
        Command::Up(_) => up::up(context, parts),
        Command::Demo => up::demo(context, parts),
        Command::Stdio(stdio) => stdio::join(context, stdio),
        Command::Down => detach::down(context),
        Command::Status => status::show(context),
        Command::Servers(servers) => dispatch_servers(context, servers),
        Command::Trust(typed) if typed.list => trust::list(context),
        Command::Trust(typed) => trust::trust(context, &typed),
        Command::Untrust(typed) => trust::untrust(context, &typed),
        Command::Agents(Agents::Add(add)) => agents::add(context, &add),
        Command::Agents(Agents::List) => agents::list(context),
        Command::Agents(Agents::Remove(named)) => agents::remove(context, &named.name),
        Command::Agents(Agents::Token(token)) => agents::token(context, token),
        Command::Tools(Tools::List(list)) => tools::list(context, &list),
        Command::Tools(Tools::Call(call)) => call::call(context, &call),
        Command::Tools(Tools::Find(find)) => find::find(context, &find),
        Command::Resources(Resources::List(list)) => resources::list(context, &list),
        Command::Resources(Resources::Read(read)) => resources::show(context, &read),
        Command::Prompts(Prompts::List(list)) => prompts::list(context, &list),
        Command::Prompts(Prompts::Get(get)) => prompts::get(context, &get),
        Command::Audit(Audit::Tail(tail)) => audit::tail(context, &tail),
        Command::Audit(Audit::Verify) => audit::verify(context),
        Command::Audit(Audit::Acknowledge(asked)) => audit::acknowledge(context, asked),
        Command::Pending => approvals::pending(context),
        Command::Approve(approve) => approvals::approve(context, &approve),
        Command::Deny(deny) => approvals::deny(context, &deny),
        Command::Grant(grant) => access::grant(context, &grant),
        Command::Revoke(revoke) => access::revoke(context, &revoke),
        Command::Grants(grants) => access::grants(context, grants.agent.as_deref()),
        Command::Explain(explain) => access::explain(context, &explain),
        Command::Guard | Command::Embed | Command::Sandbox { .. } | Command::DemoServer(_) => {
            unreachable!("these need no context")
        }
    }
}

fn dispatch_servers(context: &Context, command: Servers) -> Result<(), Failure> {
    match command {
        Servers::List => servers::list(context),
        Servers::Add(add) => entry::add(context, &add),
        Servers::Remove(named) => entry::remove(context, &named.id),
        Servers::Start(named) => servers::start(context, &named.id),
        Servers::Stop(named) => servers::stop(context, &named.id),
        Servers::Restart(named) => servers::restart(context, &named.id),
        Servers::Info(named) => info::show(context, &named.id),
        Servers::Logs(logs) => logs::show(context, logs),
    }
}
