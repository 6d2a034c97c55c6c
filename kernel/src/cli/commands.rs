//! The commands, one file for each family.

mod access;
mod agents;
mod approvals;
mod audit;
mod calls;
mod events;
mod groups;
mod nodes;
mod prompts;
mod resources;
mod servers;
mod shares;
mod skills;
mod status;
mod tools;
mod trust;
mod up;

use super::args::{Audit, Command};
use super::client::CliContext;
use super::completions;
use super::failure::Failure;
use super::print::Pager;
use super::stdio;

/// Whether a command may print several screens of text, and then exits.
fn is_long(command: &Command) -> bool {
    let ends = |it: &Audit| match it {
        Audit::Find(_) => true,
        Audit::Tail(typed) => !typed.follow,
        Audit::Verify | Audit::Acknowledge(_) => false,
    };
    matches!(command, Command::Status(_))
        || matches!(command, Command::Metrics(it) if !it.scrape_config)
        || matches!(command, Command::Audit(it) if ends(it))
}

pub(super) use events::replay::run_replay_kernel;

/// Carries out a command.
pub(super) fn run(context: &CliContext, command: Command) -> Result<(), Failure> {
    let _pager = Pager::start(context.use_pager && is_long(&command));
    match command {
        Command::Up(typed) if typed.detach => up::start_detached(context),
        Command::Up(typed) => up::run_foreground(context, &typed),
        Command::Demo => up::run_demo(context),
        Command::Stdio(typed) => stdio::run_stdio(context, typed),
        Command::Down => up::stop_kernel(context),
        Command::Upgrade(typed) => up::upgrade::upgrade(context, &typed),
        Command::Version(typed) => up::upgrade::show_version(context, &typed),
        Command::Status(asked) => status::show(context, &asked),
        Command::Metrics(typed) => status::metrics::show(context, &typed),
        Command::Top(typed) => status::top::run_top(context, &typed),
        Command::Console(typed) => status::console::open_console(context, &typed),
        Command::Doctor(typed) => status::doctor::run_doctor(context, &typed),
        Command::Check(typed) => status::check::run_checks(context, &typed),
        Command::Service(typed) => up::service::run(context, &typed),
        Command::Accept(typed) => up::accept_file(context, &typed),
        Command::Backup(typed) => up::backup::create_backup(context, &typed),
        Command::Restore(typed) => up::backup::restore_backup(context, &typed),
        Command::Servers(typed) => servers::run(context, typed),
        Command::Connect(typed) => servers::connect::connect(context, &typed),
        Command::Export(typed) => servers::export::export(context, &typed),
        Command::Import(typed) => servers::import::import(context, &typed),
        Command::Secrets(typed) => servers::stored_secrets::run(context, typed),
        Command::Logins(typed) => servers::login::run(context, &typed),
        Command::Trust(typed) => trust::trust(context, &typed),
        Command::Untrust(typed) => trust::untrust(context, &typed),
        Command::Agents(typed) => agents::run(context, typed),
        Command::Tools(typed) => tools::run(context, &typed),
        Command::Mcpl(typed) => tools::mcpl::run(context, typed),
        Command::Sets(typed) => tools::sets::run(context, &typed),
        Command::State(typed) => tools::state::run(context, &typed),
        Command::Resources(typed) => resources::run(context, &typed),
        Command::Skills(typed) => skills::run(context, &typed),
        Command::Prompts(typed) => prompts::run(context, &typed),
        Command::Calls(typed) => calls::run(context, &typed),
        Command::Audit(typed) => audit::run(context, typed),
        Command::Events(typed) => events::run(context, typed),
        Command::Trace(typed) => events::trace::trace(context, &typed),
        Command::Replay(typed) => events::replay::replay(context, &typed),
        Command::Pending => approvals::list_pending(context),
        Command::Approve(typed) => approvals::approve(context, &typed),
        Command::Answer(typed) => approvals::answer(context, &typed),
        Command::Deny(typed) => approvals::deny(context, &typed),
        Command::Permissions(typed) => approvals::permissions(context, &typed),
        Command::Grants(typed) => access::run(context, &typed),
        Command::Groups(typed) => groups::run(context, &typed),
        Command::Explain(typed) => access::explain(context, &typed),
        Command::Nodes(typed) => nodes::run(context, typed),
        Command::Cluster(typed) => nodes::run_cluster(context, &typed),
        Command::Shares(typed) => shares::run(context, &typed),
        Command::Lan(typed) => nodes::lan(context, &typed),
        Command::Completions(typed) => completions::print_script(typed.shell),
    }
}
