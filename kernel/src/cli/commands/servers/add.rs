//! `mgp servers add`: an entry of the configuration, taken up by the kernel when one runs.

use std::path::{Path, PathBuf};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_protocol::mgp::servers::Wait;
use serde_json::json;

use super::config_file::{existing, in_file, in_force, no_home, write};
use super::secrets::{self, GivenValues};
use super::starting::{StartMode, watch};
use super::state::{CONNECTED, tell};
use crate::cli::args::Add;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::{report, say};
use crate::config;
use crate::config::edit::{self, NewServer};

/// Writes a server down, and has it started when a kernel runs.
pub(super) fn add(context: &CliContext, add: &Add) -> Result<(), Failure> {
    let here = &context.look_up.folder;
    if let Some(url) = &add.url {
        secrets::judge_url(url)?;
    }
    let status = context.status()?;
    let file = target(context, add, status.as_ref())?;
    not_hidden(context, add, status.as_ref(), &file)?;
    let home = context.look_up.secrets_folder();
    let prefix = home.map(|home| secrets::prefix(&home, &add.id, &file));
    let store = context.secret_store().ok();
    let before = existing(&file)?;
    let taken = || in_file(&file, &edit::EditError::Taken(add.id.clone()));
    if before
        .as_deref()
        .is_some_and(|text| edit::names(text, &add.id))
    {
        return Err(taken());
    }
    // Asked for when all else is known to be well.
    edit::add(
        before.as_deref().unwrap_or_default(),
        &new_server(add, here, GivenValues::default()),
    )
    .map_err(|e| in_file(&file, &e))?;
    let given = secrets::given(add, here, prefix.as_deref())?;
    let kept = given.write(store.as_ref())?;
    let kept: Vec<String> = kept.into_iter().map(str::to_owned).collect();
    let server = new_server(add, here, given);
    let text = edit::add(before.as_deref().unwrap_or_default(), &server);
    let text = text.map_err(|e| in_file(&file, &e))?;
    if let Some(problem) = config::judge(&text, &file, &server.id) {
        if !kept.is_empty() {
            prefix.inspect(|prefix| secrets::forget(store.as_ref(), prefix));
        }
        return Err(Failure::Usage(problem.message));
    }
    let trusted = write(context, &file, before.as_deref(), &text, add.project)?;
    tell_added(context, &server, &file, &kept)?;
    if add.project && !trusted {
        let folder = file.parent().unwrap_or(here).display();
        report(format_args!(
            "note: {} is not trusted: `mgp trust {folder}` shows it, and asks",
            file.display()
        ));
        return say_if_json(context, &server.id, &file);
    }
    match status {
        Some(_) => take_up(context, &file, &server),
        None => say_if_json(context, &server.id, &file),
    }
}

fn tell_added(
    context: &CliContext,
    server: &NewServer,
    file: &Path,
    kept: &[String],
) -> Result<(), Failure> {
    for option in secrets::in_command(&server.command) {
        report(format_args!(
            "note: every user of this machine can read what stands behind `{option}` while {} runs; \
             most servers take it as a variable, too: `--env NAME`",
            server.id
        ));
    }
    if context.json {
        return Ok(());
    }
    for name in kept {
        say(format_args!("kept the secret {name}"))?;
    }
    say(format_args!("added {} to {}", server.id, file.display()))
}

/// A server that is not seen for one of the same name in a stronger file is not added.
fn not_hidden(
    context: &CliContext,
    add: &Add,
    status: Option<&KernelStatus>,
    target: &Path,
) -> Result<(), Failure> {
    if add.project {
        return Ok(());
    }
    let files = in_force(context, status)?;
    for stronger in files.iter().take_while(|file| *file != target) {
        if existing(stronger)?.is_some_and(|text| edit::names(&text, &add.id)) {
            return Err(in_file(stronger, &edit::EditError::Taken(add.id.clone())));
        }
    }
    Ok(())
}

/// Has the kernel read its files again, and start what is new.
fn take_up(context: &CliContext, file: &Path, server: &NewServer) -> Result<(), Failure> {
    let id = server.id.as_str();
    let status = context.reload()?;
    let Some(known) = status.servers.into_iter().find(|known| known.id == id) else {
        return Err(Failure::Other(format!(
            "the kernel that runs (process {}) does not read that file; it reads {}",
            status.pid,
            match status.config_files.as_slice() {
                [] => "none yet".to_owned(),
                files => files.join(", "),
            }
        )));
    };
    match (known.state.as_str(), server.autostart) {
        ("error", _) => tell(context, &known, CONNECTED),
        (_, Some(false)) => say_if_json(context, id, file),
        _ => started(context, id),
    }
}

/// Waits for the start that the kernel has begun. Who does not want to wait ends the wait, not the start:
/// the entry is written, and the server is the kernel's.
fn started(context: &CliContext, id: &str) -> Result<(), Failure> {
    match watch(context, Wait::METHOD, "starting", id, StartMode::Plain) {
        Ok(server) => tell(context, &server, CONNECTED),
        Err(Failure::Interrupted) => {
            if !context.json {
                report(format_args!(
                    "{id} stays, and goes on starting: `mgp servers logs {id} -f` shows how, \
                     `mgp servers remove {id}` takes it out"
                ));
            }
            Err(Failure::Interrupted)
        }
        Err(other) => Err(other),
    }
}

fn say_if_json(context: &CliContext, id: &str, file: &Path) -> Result<(), Failure> {
    match context.json {
        true => say(json!({"id": id, "file": file})),
        false => Ok(()),
    }
}

/// Where a new server goes: the file that was named, the project's when that is meant, else the user's,
/// or the one file the running kernel was given.
fn target(
    context: &CliContext,
    add: &Add,
    status: Option<&KernelStatus>,
) -> Result<PathBuf, Failure> {
    match (context.look_up.named(), add.project) {
        (Some((by, _)), true) => Err(Failure::Usage(format!(
            "`--project` means ./mgp.toml, and {by} names another file"
        ))),
        (Some((_, named)), false) => Ok(named),
        (None, true) => Ok(context.look_up.project_file()),
        (None, false) => {
            let kernels = status.and_then(|status| status.servers_file.as_ref());
            let file = kernels
                .map(PathBuf::from)
                .or_else(|| context.look_up.user_file());
            file.ok_or_else(no_home)
        }
    }
}

fn new_server(add: &Add, folder: &Path, given: GivenValues) -> NewServer {
    let mut command = add.command.clone();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        *program = from_here(program, folder);
    }
    NewServer {
        id: add.id.clone(),
        command,
        url: add.url.clone(),
        env: given.env,
        headers: given.headers,
        cwd: add.cwd.as_ref().map(|cwd| from_here(cwd, folder)),
        autostart: add.no_autostart.then_some(false),
        trust_level: add.trust.clone(),
        restart_policy: add.restart.clone(),
    }
}

/// A path typed here must not mean another place in a file that lies elsewhere.
fn from_here(path: &str, folder: &Path) -> String {
    match path.starts_with("${") {
        true => path.to_owned(),
        false => folder.join(path).to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests;
