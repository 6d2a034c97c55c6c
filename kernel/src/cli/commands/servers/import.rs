//! `mgp import`: adds the servers of clients to this kernel.

mod answers;
mod local_servers;
mod report;
pub(super) mod sources;
mod stateless_packages;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use mgp_clients::{
    Client, ClientServer, Plan, PlannedConnection, PlannedServer, PlannedValue, Planner,
    ServerOrigin, SkipReason, SkippedKey, SkippedServer, ToolLimits, UrlPiece,
};
use mgp_protocol::mgp::kernel::KernelStatus;
use serde_json::Value;

use self::answers::InputAnswers;
use self::local_servers::{LocalServer, LocalValues};
use self::sources::Sources;
use self::stateless_packages::is_stateless;
use super::config_file::{
    check_unchanged, files_in_force, no_home_failure, read_if_exists, to_failure, write,
};
use super::supplied_values::{self, SuppliedValues};
use crate::cli::args::Import;
use crate::cli::client::CliContext;
use crate::cli::commands::agents;
use crate::cli::failure::Failure;
use crate::cli::print::{confirm, print_error, print_line};
use crate::cli::text_format::pluralize;
use crate::config;
use crate::config::edit::{self, NewServer};

/// The default endpoint of a kernel.
pub(super) const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:7332";

/// The entries to write, and the file.
struct ImportEdit {
    file: PathBuf,
    text_before: Option<String>,
    text: String,
    servers: Vec<PlannedEntry>,
}

struct PlannedEntry {
    planned: PlannedServer,
    values: SuppliedValues,
}

/// Shows the servers of clients, asks for confirmation, and adds them.
pub(in crate::cli::commands) fn import(
    context: &CliContext,
    typed: &Import,
) -> Result<(), Failure> {
    let sources = Sources::read(context, typed)?;
    let answers = InputAnswers::ask(&sources, typed.yes || typed.dry_run || context.json)?;
    let status = context.status()?;
    let known = ActiveServers::new(context, status.as_ref())?;
    let mut doors = status.iter().flat_map(|status| &status.doors);
    let door = doors.find_map(|door| agents::endpoint_url(door));
    let door = door.and_then(|url| url.strip_suffix("/mcp"));
    let mut plan = known.plan(context, &sources, &answers, door);
    keep_selected(&mut plan, typed)?;
    let kernels = status
        .as_ref()
        .and_then(|status| status.servers_file.as_ref());
    let named = context.look_up.explicit_file().map(|(_, file)| file);
    let file = named
        .or_else(|| kernels.map(PathBuf::from))
        .or_else(|| context.look_up.user_file());
    let idle_stops = match typed.idle_stop {
        true => IdleStops::All,
        false => IdleStops::KnownStateless,
    };
    let file = file.ok_or_else(no_home_failure)?;
    let writing = ImportEdit::new(context, file, &mut plan, idle_stops)?;
    if !context.json {
        print_line(report::render(&sources, &plan, &writing))?;
    }
    let none = writing.servers.is_empty();
    let done =
        !none && !typed.dry_run && (typed.yes || (!context.json && confirm_import(&writing)?));
    if done {
        writing.write(context)?;
    }
    if context.json {
        print_line(report::to_json(&sources, &plan, &writing, done))?;
    }
    // Without names every file of the clients is tried.
    if !typed.from.is_empty() && !sources.unreadable.is_empty() {
        let count = pluralize(sources.unreadable.len(), "file");
        return Err(Failure::Other(format!("{count} could not be read")));
    }
    if context.json {
        return Ok(());
    }
    match (done, none || typed.dry_run) {
        (true, _) => report_done(context, &writing, status.is_some()),
        (false, true) => Ok(()),
        (false, false) => Err(Failure::Other("nothing was changed".to_owned())),
    }
}

/// The servers of the files in force.
struct ActiveServers {
    servers: Vec<LocalServer>,
    values: LocalValues,
}

impl ActiveServers {
    fn new(context: &CliContext, status: Option<&KernelStatus>) -> Result<Self, Failure> {
        let mut servers = Vec::new();
        for file in files_in_force(context, status)? {
            if let Some(text) = read_if_exists(&file)? {
                let read = LocalServer::read_all(&text, &file);
                let broken = |why| {
                    Failure::Other(format!(
                        "{}: {why}; the current servers are not known until this is fixed: `mgp doctor` shows where",
                        file.display()
                    ))
                };
                servers.extend(read.map_err(broken)?);
            }
        }
        let values = LocalValues::new(context);
        Ok(Self { servers, values })
    }

    fn plan(
        &self,
        context: &CliContext,
        sources: &Sources,
        answers: &InputAnswers,
        door: Option<&str>,
    ) -> Plan {
        let planner = Planner {
            home: &context.base_dirs.home.clone().unwrap_or_default(),
            answers: &answers.values,
            is_kernel_command,
            endpoint: door.unwrap_or(DEFAULT_ENDPOINT),
            find_existing: &|reach| {
                let mut servers = self.servers.iter();
                let same = servers.find(|server| server.has_reach(reach, &self.values));
                same.map(|server| server.id.clone())
            },
        };
        let ids = self.servers.iter().map(|server| server.id.clone());
        planner.plan(&sources.files, &ids.collect())
    }
}

/// A server of a client's file that this kernel has, too.
pub(super) struct DuplicateServer {
    /// The folder of its project, if any.
    pub(super) project: Option<String>,
    /// Its name there.
    pub(super) name: String,
    /// Its id here, and its file.
    pub(super) id: String,
    pub(super) file: PathBuf,
    /// Tool limits of the client that this kernel lacks.
    pub(super) tools: ToolLimits,
    /// Keys of its entry without an equivalent here.
    pub(super) dropped_keys: Vec<SkippedKey>,
    /// Whether it is disabled there and enabled here.
    pub(super) is_disabled_only_in_client: bool,
    /// Why it does not start here.
    pub(super) not_starting: Vec<String>,
}

/// The servers of a client's file that this kernel has, too.
pub(super) fn find_duplicates(
    context: &CliContext,
    file: &Path,
    client: Client,
) -> Result<Vec<DuplicateServer>, Failure> {
    let sources = Sources::from_file(context, file, client);
    let known = ActiveServers::new(context, context.status()?.as_ref())?;
    let plan = known.plan(context, &sources, &InputAnswers::default(), None);
    let mut doubled = Vec::new();
    for left in plan.skipped {
        let SkipReason::AlreadyPresent(id) = left.reason else {
            continue;
        };
        let ServerOrigin { name, project, .. } = left.origin;
        let mut there = sources.files.iter().flat_map(|file| &file.servers);
        let there = there.find(|there| there.name == name && there.project == project);
        let here = known.servers.iter().find(|here| here.id == id);
        let (Some(there), Some(here)) = (there, here) else {
            continue;
        };
        doubled.push(DuplicateServer {
            tools: here.missing_tool_limits(&there.tools),
            dropped_keys: there.skipped_keys.clone(),
            is_disabled_only_in_client: there.disabled && here.starts,
            not_starting: not_starting(there, here, &known.values),
            file: here.file.clone(),
            id,
            name,
            project,
        });
    }
    Ok(doubled)
}

/// Why a server that the client starts does not start here.
fn not_starting(there: &ClientServer, here: &LocalServer, values: &LocalValues) -> Vec<String> {
    let (name, id) = (&there.name, &here.id);
    let mut why = Vec::new();
    if !there.disabled && !here.starts {
        why.push(format!(
            "{name}: it starts only on request here: `mgp servers start {id}`"
        ));
    }
    let missing = here.missing(values);
    why.extend(missing.map(|missing| format!("{name}: it does not start here: {missing}")));
    why
}

/// Whether a command is this program, which would start itself.
fn is_kernel_command(words: &[String]) -> bool {
    let name = words
        .first()
        .and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| name == "mgp") && words.get(1).is_some_and(|word| word == "stdio")
}

/// Keeps only the named servers.
fn keep_selected(plan: &mut Plan, typed: &Import) -> Result<(), Failure> {
    if typed.only.is_empty() {
        return Ok(());
    }
    for name in &typed.only {
        if !plan.servers.iter().any(|server| server.id == *name) {
            let ids: Vec<_> = plan
                .servers
                .iter()
                .map(|server| server.id.as_str())
                .collect();
            let near = mgp_engine::doors::suggestions::nearest(name, ids.iter().copied());
            let hint = match near {
                Some(near) => format!("did you mean {near}?"),
                None if ids.is_empty() => "nothing new was found".to_owned(),
                None => format!("found were {}", ids.join(", ")),
            };
            return Err(Failure::Usage(format!(
                "no server {name:?} was found; {hint}"
            )));
        }
    }
    plan.servers
        .retain(|server| typed.only.contains(&server.id));
    Ok(())
}

impl ImportEdit {
    /// The edited file. Entries that would be read differently are left out, and reported.
    fn new(
        context: &CliContext,
        file: PathBuf,
        plan: &mut Plan,
        idle_stops: IdleStops,
    ) -> Result<Self, Failure> {
        let before = read_if_exists(&file)?;
        let home = context.look_up.secrets_folder();
        let mut text = before.clone().unwrap_or_default();
        let mut servers = Vec::new();
        for planned in std::mem::take(&mut plan.servers) {
            let prefix = home
                .as_deref()
                .map(|home| supplied_values::secret_prefix(home, &planned.id, &file));
            let (server, given) = match new_server(&planned, prefix.as_deref(), idle_stops) {
                Ok(made) => made,
                Err(why) => {
                    plan.skipped.push(unplanned(&planned, &why.to_string()));
                    continue;
                }
            };
            let with =
                edit::add_entry(&text, &server).map_err(|error| to_failure(&file, &error))?;
            let known = edit::add_entry(&text, &SuppliedValues::with_placeholders(&server));
            let known = known.map_err(|error| to_failure(&file, &error))?;
            match config::check_server(&known, &file, &server.id) {
                Some(problem) => plan.skipped.push(unplanned(&planned, &problem.message)),
                None => {
                    text = with;
                    servers.push(PlannedEntry {
                        planned,
                        values: given,
                    });
                }
            }
        }
        Ok(Self {
            file,
            text_before: before,
            text,
            servers,
        })
    }

    /// Secrets first: an entry never refers to a missing one.
    fn write(&self, context: &CliContext) -> Result<(), Failure> {
        check_unchanged(&self.file, self.text_before.as_deref())?;
        let store = context.secret_store().ok();
        for server in &self.servers {
            server.values.store(store.as_ref())?;
        }
        write(
            context,
            &self.file,
            self.text_before.as_deref(),
            &self.text,
            false,
        )?;
        Ok(())
    }

    /// The new part of the file.
    fn added_text(&self) -> &str {
        let before = self.text_before.as_deref().unwrap_or_default().trim_end();
        self.text.strip_prefix(before).unwrap_or(&self.text).trim()
    }
}

fn unplanned(planned: &PlannedServer, why: &str) -> SkippedServer {
    SkippedServer {
        origin: planned.origins[0].clone(),
        reason: SkipReason::InvalidEntry(why.to_owned()),
    }
}

/// Which of the servers are stopped when they are idle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdleStops {
    /// Those that are known to have no state.
    KnownStateless,
    /// All, as the operator confirmed.
    All,
}

fn new_server(
    planned: &PlannedServer,
    prefix: Option<&str>,
    idle_stop: IdleStops,
) -> Result<(NewServer, SuppliedValues), Failure> {
    let mut given = SuppliedValues::default();
    let mut server = NewServer {
        id: planned.id.clone(),
        start: Some(if planned.disabled {
            "manual"
        } else {
            "on-demand"
        }),
        tools: planned.tools.clone(),
        ..NewServer::default()
    };
    match &planned.connection {
        PlannedConnection::Command {
            words,
            env,
            env_file,
            cwd,
        } => {
            if !planned.disabled && idle_stop == IdleStops::KnownStateless && !is_stateless(words) {
                server.idle_stop_secs = Some(0);
            }
            server.command.clone_from(words);
            server.cwd.clone_from(cwd);
            server.env = store_values(&mut given, prefix, env)?;
            if let Some(file) = env_file {
                let own: Vec<_> = server.env.iter().map(|(name, _)| name.clone()).collect();
                let more = given.add_file(prefix, Path::new(file))?;
                let more = more.into_iter().filter(|(name, _)| !own.contains(name));
                server.env.extend(more);
            }
        }
        PlannedConnection::Url { url, headers } => {
            let pieces = url.iter().map(|piece| match piece {
                UrlPiece::Literal(text) => Ok(text.clone()),
                UrlPiece::Secret { name, value } => {
                    let reference = given.add_secret(prefix, name, value.clone())?;
                    Ok(format!("${{{reference}}}"))
                }
            });
            server.url = Some(pieces.collect::<Result<String, Failure>>()?);
            server.headers = store_values(&mut given, prefix, headers)?;
        }
    }
    Ok((server, given))
}

fn store_values(
    given: &mut SuppliedValues,
    prefix: Option<&str>,
    values: &[(String, PlannedValue)],
) -> Result<Vec<(String, String)>, Failure> {
    let mut written = Vec::new();
    for (name, value) in values {
        let value = match value {
            PlannedValue::Literal(text) => text.clone(),
            PlannedValue::Secret(secret) => given.add_secret(prefix, name, secret.clone())?,
        };
        written.push((name.clone(), value));
    }
    Ok(written)
}

fn confirm_import(writing: &ImportEdit) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask on: what is shown above is added with `mgp import --yes`"
                .to_owned(),
        ));
    }
    let many = pluralize(writing.servers.len(), "server");
    confirm(&format!("Add {many} to {}?", writing.file.display()))
}

fn report_done(context: &CliContext, writing: &ImportEdit, runs: bool) -> Result<(), Failure> {
    let many = pluralize(writing.servers.len(), "server");
    print_line(format_args!("added {many} to {}", writing.file.display()))?;
    if !runs {
        print_error(
            "the kernel lists their tools: `mgp up --detach`; each starts when it is called",
        );
        return Ok(());
    }
    context.reload_kernel()?;
    print_error(
        "they are started once for their tools, then when they are called: `mgp servers list` shows how they are",
    );
    Ok(())
}

/// A list as JSON.
fn to_json_array<T>(items: &[T], hint: impl Fn(&T) -> Value) -> Value {
    items.iter().map(hint).collect()
}
