//! `mgp import`: servers that clients have written down become this kernel's.

mod answers;
mod here;
pub(super) mod sources;
mod telling;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use mgp_clients::{
    Client, FoundServer, KeyLeftOut, Plan, PlannedReach, PlannedServer, PlannedValue, Planner,
    ServerOrigin, ToolLimits, Unplanned, UrlPiece, WhyLeft,
};
use mgp_protocol::mgp::kernel::KernelStatus;
use serde_json::Value;

use self::answers::InputAnswers;
use self::here::{HereValues, ServerHere};
use self::sources::Sources;
use super::config_file::{check_unchanged, existing, in_file, in_force, no_home, write};
use super::secrets::{self, GivenValues};
use crate::cli::args::Import;
use crate::cli::client::CliContext;
use crate::cli::commands::agents;
use crate::cli::failure::Failure;
use crate::cli::print::{ask_yes, report, say};
use crate::cli::words::counted;
use crate::config;
use crate::config::edit::{self, NewServer};

/// The door of a kernel that is not told another one.
pub(super) const USUAL_DOOR: &str = "http://127.0.0.1:7332";

/// What is to be written, and where.
struct EntriesToWrite {
    file: PathBuf,
    before: Option<String>,
    text: String,
    servers: Vec<ServerToWrite>,
}

/// One server of it.
struct ServerToWrite {
    planned: PlannedServer,
    given: GivenValues,
}

/// Shows what clients have, asks, and adds it.
pub(in crate::cli::commands) fn import(
    context: &CliContext,
    typed: &Import,
) -> Result<(), Failure> {
    let sources = Sources::read(context, typed)?;
    let answers = InputAnswers::ask(&sources, typed.yes || typed.dry_run || context.json)?;
    let status = context.status()?;
    let known = ServersInForce::new(context, status.as_ref())?;
    let mut doors = status.iter().flat_map(|status| &status.doors);
    let door = doors.find_map(|door| agents::url(door));
    let door = door.and_then(|url| url.strip_suffix("/mcp"));
    let mut plan = known.plan(context, &sources, &answers, door);
    chosen(&mut plan, typed)?;
    let kernels = status
        .as_ref()
        .and_then(|status| status.servers_file.as_ref());
    let named = context.look_up.named().map(|(_, file)| file);
    let file = named
        .or_else(|| kernels.map(PathBuf::from))
        .or_else(|| context.look_up.user_file());
    let writing = EntriesToWrite::new(context, file.ok_or_else(no_home)?, &mut plan)?;
    if !context.json {
        say(telling::in_words(&sources, &plan, &writing))?;
    }
    let none = writing.servers.is_empty();
    let done = !none && !typed.dry_run && (typed.yes || (!context.json && agreed(&writing)?));
    if done {
        writing.write(context)?;
    }
    if context.json {
        return say(telling::to_json(&sources, &plan, &writing, done));
    }
    match (done, none || typed.dry_run) {
        (true, _) => tell_done(context, &writing, status.is_some()),
        (false, true) => Ok(()),
        (false, false) => Err(Failure::Other("nothing was changed".to_owned())),
    }
}

/// What the files in force have.
struct ServersInForce {
    servers: Vec<ServerHere>,
    values: HereValues,
}

impl ServersInForce {
    fn new(context: &CliContext, status: Option<&KernelStatus>) -> Result<Self, Failure> {
        let mut servers = Vec::new();
        for file in in_force(context, status)? {
            if let Some(text) = existing(&file)? {
                let read = ServerHere::read_all(&text, &file);
                let broken = |why| {
                    Failure::Other(format!(
                        "{}: {why}; which servers are here is not known until it is mended: `mgp doctor` shows where",
                        file.display()
                    ))
                };
                servers.extend(read.map_err(broken)?);
            }
        }
        let values = HereValues::new(context);
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
            home: &context.bases.home.clone().unwrap_or_default(),
            answers: &answers.given,
            own: is_own,
            door: door.unwrap_or(USUAL_DOOR),
            here: &|reach| {
                let mut servers = self.servers.iter();
                let same = servers.find(|server| server.is_reached_by(reach, &self.values));
                same.map(|server| server.id.clone())
            },
        };
        let ids = self.servers.iter().map(|server| server.id.clone());
        planner.plan(&sources.files, &ids.collect())
    }
}

/// A server of a client's file that this kernel has, too.
pub(super) struct DoubledServer {
    /// The folder of the only project it is for.
    pub(super) project: Option<String>,
    /// Its name there.
    pub(super) name: String,
    /// Its id here, and the file that has it.
    pub(super) id: String,
    pub(super) file: PathBuf,
    /// The tools the client keeps back, and this kernel does not.
    pub(super) tools: ToolLimits,
    /// What else its entry says that has no place here.
    pub(super) left_out: Vec<KeyLeftOut>,
    /// It is off there, and on here.
    pub(super) only_off_there: bool,
    /// Why it does not start here.
    pub(super) not_starting: Vec<String>,
}

/// What a client's file has that this kernel has, too.
pub(super) fn doubled(
    context: &CliContext,
    file: &Path,
    client: Client,
) -> Result<Vec<DoubledServer>, Failure> {
    let sources = Sources::of_file(file, client);
    let known = ServersInForce::new(context, context.status()?.as_ref())?;
    let plan = known.plan(context, &sources, &InputAnswers::default(), None);
    let mut doubled = Vec::new();
    for left in plan.left {
        let WhyLeft::Here(id) = left.why else {
            continue;
        };
        let ServerOrigin { name, project, .. } = left.origin;
        let mut there = sources.files.iter().flat_map(|file| &file.servers);
        let there = there.find(|there| there.name == name && there.project == project);
        let here = known.servers.iter().find(|here| here.id == id);
        let (Some(there), Some(here)) = (there, here) else {
            continue;
        };
        doubled.push(DoubledServer {
            tools: here.tools_missing(&there.tools),
            left_out: there.left_out.clone(),
            only_off_there: there.disabled && here.autostart,
            not_starting: not_starting(there, here, &known.values),
            file: here.file.clone(),
            id,
            name,
            project,
        });
    }
    Ok(doubled)
}

/// Why a server that its client starts does not start here.
fn not_starting(there: &FoundServer, here: &ServerHere, values: &HereValues) -> Vec<String> {
    let (name, id) = (&there.name, &here.id);
    let mut why = Vec::new();
    if !there.disabled && !here.autostart {
        why.push(format!(
            "{name}: it has autostart = false here, and does not start by itself: `mgp servers start {id}`"
        ));
    }
    let missing = here.missing(values);
    why.extend(missing.map(|missing| format!("{name}: it does not start here: {missing}")));
    why
}

/// Whether a command is this program: it would start itself.
fn is_own(words: &[String]) -> bool {
    let name = words
        .first()
        .and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| name == "mgp") && words.get(1).is_some_and(|word| word == "stdio")
}

/// Only those that were named are left.
fn chosen(plan: &mut Plan, typed: &Import) -> Result<(), Failure> {
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
            let near = mgp_engine::doors::nearest::nearest(name, ids.iter().copied());
            let told = match near {
                Some(near) => format!("did you mean {near}?"),
                None if ids.is_empty() => "nothing new was found".to_owned(),
                None => format!("found were {}", ids.join(", ")),
            };
            return Err(Failure::Usage(format!(
                "no server {name:?} was found; {told}"
            )));
        }
    }
    plan.servers
        .retain(|server| typed.only.contains(&server.id));
    Ok(())
}

impl EntriesToWrite {
    /// The file as it would be. What would not be read as it is meant is left out, and told.
    fn new(context: &CliContext, file: PathBuf, plan: &mut Plan) -> Result<Self, Failure> {
        let before = existing(&file)?;
        let home = context.look_up.secrets_folder();
        let mut text = before.clone().unwrap_or_default();
        let mut servers = Vec::new();
        for planned in std::mem::take(&mut plan.servers) {
            let prefix = home
                .as_deref()
                .map(|home| secrets::prefix(home, &planned.id, &file));
            let (server, given) = match new_server(&planned, prefix.as_deref()) {
                Ok(made) => made,
                Err(why) => {
                    plan.left.push(left(&planned, &why.to_string()));
                    continue;
                }
            };
            let with = edit::add(&text, &server).map_err(|error| in_file(&file, &error))?;
            let known = edit::add(&text, &GivenValues::as_if_kept(&server));
            let known = known.map_err(|error| in_file(&file, &error))?;
            match config::judge(&known, &file, &server.id) {
                Some(problem) => plan.left.push(left(&planned, &problem.message)),
                None => {
                    text = with;
                    servers.push(ServerToWrite { planned, given });
                }
            }
        }
        Ok(Self {
            file,
            before,
            text,
            servers,
        })
    }

    /// Secrets first: an entry never names what is not there yet.
    fn write(&self, context: &CliContext) -> Result<(), Failure> {
        check_unchanged(&self.file, self.before.as_deref())?;
        let store = context.secret_store().ok();
        for server in &self.servers {
            server.given.write(store.as_ref())?;
        }
        write(
            context,
            &self.file,
            self.before.as_deref(),
            &self.text,
            false,
        )?;
        Ok(())
    }

    /// What is new in the file.
    fn added(&self) -> &str {
        let before = self.before.as_deref().unwrap_or_default().trim_end();
        self.text.strip_prefix(before).unwrap_or(&self.text).trim()
    }
}

fn left(planned: &PlannedServer, why: &str) -> Unplanned {
    Unplanned {
        origin: planned.origins[0].clone(),
        why: WhyLeft::Refused(why.to_owned()),
    }
}

fn new_server(
    planned: &PlannedServer,
    prefix: Option<&str>,
) -> Result<(NewServer, GivenValues), Failure> {
    let mut given = GivenValues::default();
    let mut server = NewServer {
        id: planned.id.clone(),
        autostart: planned.disabled.then_some(false),
        tools: planned.tools.clone(),
        ..NewServer::default()
    };
    match &planned.reach {
        PlannedReach::Command {
            words,
            env,
            env_file,
            cwd,
        } => {
            server.command.clone_from(words);
            server.cwd.clone_from(cwd);
            server.env = kept(&mut given, prefix, env)?;
            if let Some(file) = env_file {
                let own: Vec<_> = server.env.iter().map(|(name, _)| name.clone()).collect();
                let more = given.keep_file(prefix, Path::new(file))?;
                let more = more.into_iter().filter(|(name, _)| !own.contains(name));
                server.env.extend(more);
            }
        }
        PlannedReach::Url { url, headers } => {
            let pieces = url.iter().map(|piece| match piece {
                UrlPiece::Written(text) => Ok(text.clone()),
                UrlPiece::Secret { name, value } => {
                    let reference = given.keep(prefix, name, value.clone())?;
                    Ok(format!("${{{reference}}}"))
                }
            });
            server.url = Some(pieces.collect::<Result<String, Failure>>()?);
            server.headers = kept(&mut given, prefix, headers)?;
        }
    }
    Ok((server, given))
}

fn kept(
    given: &mut GivenValues,
    prefix: Option<&str>,
    values: &[(String, PlannedValue)],
) -> Result<Vec<(String, String)>, Failure> {
    let mut written = Vec::new();
    for (name, value) in values {
        let value = match value {
            PlannedValue::Written(text) => text.clone(),
            PlannedValue::Secret(secret) => given.keep(prefix, name, secret.clone())?,
        };
        written.push((name.clone(), value));
    }
    Ok(written)
}

fn agreed(writing: &EntriesToWrite) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask on: what is shown above is added with `mgp import --yes`"
                .to_owned(),
        ));
    }
    let many = counted(writing.servers.len(), "server");
    ask_yes(&format!("Add {many} to {}?", writing.file.display()))
}

fn tell_done(context: &CliContext, writing: &EntriesToWrite, runs: bool) -> Result<(), Failure> {
    let many = counted(writing.servers.len(), "server");
    say(format_args!("added {many} to {}", writing.file.display()))?;
    if !runs {
        report("they start with the kernel: `mgp up --detach`");
        return Ok(());
    }
    context.reload()?;
    report("they are starting: `mgp servers list` shows how they are");
    Ok(())
}

/// The JSON of a list.
fn list<T>(items: &[T], told: impl Fn(&T) -> Value) -> Value {
    items.iter().map(told).collect()
}
