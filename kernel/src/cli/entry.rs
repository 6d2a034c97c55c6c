//! `mgp servers add|remove`: edits of the configuration, taken up by the kernel when one runs.

use std::io;
use std::path::{Path, PathBuf};

use mgp_discovery::config::ConfigKind;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::discovery::{Deregister, Deregistered, List, Servers};
use mgp_protocol::mgp::kernel::{KernelStatus, Reload, Status};
use mgp_protocol::mgp::servers::Wait;
use serde_json::json;

use super::client::{Opening, read};
use super::command::Add;
use super::context::Context;
use super::detach;
use super::failure::Failure;
use super::names;
use super::output::{report, say};
use super::progress::Progress;
use super::secrets::{self, Given};
use super::servers::{CONNECTED, tell};
use super::starting::watch;
use super::words::plain;
use crate::config;
use crate::config::edit::{self, NewServer};
use crate::paths::open_file;
use crate::trust::Book;

/// Writes a server down, and has it started when a kernel runs.
pub(super) fn add(context: &Context, add: &Add) -> Result<(), Failure> {
    let here = &context.look_up.folder;
    if let Some(url) = &add.url {
        secrets::judge_url(url)?;
    }
    let status = detach::status(context)?;
    let file = target(context, add, status.as_ref())?;
    not_hidden(context, add, status.as_ref(), &file)?;
    let home = context.look_up.secrets_folder();
    let folder = home.map(|home| secrets::folder(&home, &add.id, &file));
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
        &new_server(add, here, Given::default()),
    )
    .map_err(|e| in_file(&file, &e))?;
    let given = secrets::given(add, here, folder.as_deref())?;
    let kept: Vec<PathBuf> = given.write()?.into_iter().map(Path::to_owned).collect();
    let server = new_server(add, here, given);
    let text = edit::add(before.as_deref().unwrap_or_default(), &server);
    let text = text.map_err(|e| in_file(&file, &e))?;
    if let Some(problem) = config::judge(&text, &file, &server.id) {
        if !kept.is_empty() {
            folder.as_deref().inspect(|folder| secrets::forget(folder));
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
    context: &Context,
    server: &NewServer,
    file: &Path,
    kept: &[PathBuf],
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
    for path in kept {
        say(format_args!("kept {}", path.display()))?;
    }
    say(format_args!("added {} to {}", server.id, file.display()))
}

/// A server that is not seen for one of the same name in a stronger file is not added.
fn not_hidden(
    context: &Context,
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

/// Writes a file of the configuration. A project's that was trusted as it was stays trusted, for what
/// changed is what was typed; so does one that was not there. Answers whether it is trusted now.
fn write(
    context: &Context,
    file: &Path,
    before: Option<&str>,
    text: &str,
    project: bool,
) -> Result<bool, Failure> {
    let book = Book::open(context.look_up.trust_file().as_deref());
    let place = crate::trust::location(file).ok();
    let known = place.as_deref().and_then(|place| book.entry(place));
    let trusted = match before {
        Some(before) => known.is_some_and(|known| known.blake3 == crate::trust::hash(before)),
        None => project,
    };
    edit::write(file, text)?;
    // Only now: what is written before it is trusted leaves a running kernel with what it has.
    if let (true, Ok(place)) = (trusted, crate::trust::location(file)) {
        super::trust::keep(context, &place, text)?;
    }
    Ok(trusted)
}

/// Has the kernel read its files again, and start what is new.
fn take_up(context: &Context, file: &Path, server: &NewServer) -> Result<(), Failure> {
    let id = server.id.as_str();
    let status: KernelStatus = context.with_kernel(Opening::default(), async |client| {
        let mut progress = Progress::of("reading the configuration");
        client
            .request(Reload::METHOD, &json!({}), &mut progress)
            .await?;
        read(
            &client
                .request(Status::METHOD, &json!({}), &mut progress)
                .await?,
        )
    })?;
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
fn started(context: &Context, id: &str) -> Result<(), Failure> {
    match watch(context, Wait::METHOD, "starting", id) {
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

fn say_if_json(context: &Context, id: &str, file: &Path) -> Result<(), Failure> {
    match context.json {
        true => say(json!({"id": id, "file": file})),
        false => Ok(()),
    }
}

/// Takes a server out of the first file that has it, or out of those that were registered.
pub(super) fn remove(context: &Context, id: &str) -> Result<(), Failure> {
    let status = detach::status(context)?;
    let files = in_force(context, status.as_ref())?;
    let mut left = Vec::new();
    let mut removed = None;
    for file in &files {
        let before = existing(file)?;
        match edit::remove(before.as_deref().unwrap_or_default(), id) {
            Ok(text) if removed.is_none() => {
                write(context, file, before.as_deref(), &text, false)?;
                if let Some(home) = context.look_up.secrets_folder() {
                    secrets::forget(&secrets::folder(&home, id, file));
                }
                removed = Some(file);
            }
            Ok(_) => left.push(file),
            Err(edit::EditError::Unknown(_)) => {}
            Err(e) => return Err(in_file(file, &e)),
        }
    }
    if removed.is_none() && status.is_some() && deregister(context, id)? {
        return Ok(());
    }
    let Some(file) = removed else {
        if status.is_some() {
            context.with_kernel(Opening::default(), async |client| {
                names::server(client, id).await
            })?;
        }
        let read: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        return Err(Failure::Other(format!(
            "there is no server `{id}` in {}",
            read.join(", ")
        )));
    };
    for file in left {
        report(format_args!(
            "note: {} has a server `{id}` too, which counts now",
            file.display()
        ));
    }
    if status.is_some() {
        context.with_kernel(Opening::default(), async |client| {
            let mut progress = Progress::of(format!("stopping {id}"));
            client
                .request(Reload::METHOD, &json!({}), &mut progress)
                .await
        })?;
    }
    match context.json {
        true => say(json!({"id": id, "file": file})),
        false => say(format_args!("removed {id} from {}", file.display())),
    }
}

/// Takes out a server that was registered while the kernel ran; false when there is none.
fn deregister(context: &Context, id: &str) -> Result<bool, Failure> {
    let gone = context.with_kernel(Opening::default(), async |client| {
        let mut progress = Progress::of(format!("stopping {id}"));
        let servers = client
            .request(List::METHOD, &json!({}), &mut progress)
            .await?;
        let Servers { servers } = read(&servers)?;
        let registered = servers.into_iter().find(|server| server.id == id);
        let Some(maker) = registered.and_then(|server| server.created_by) else {
            return Ok(None);
        };
        let params = json!({"id": id, "reason": "mgp servers remove"});
        let gone = client
            .request(Deregister::METHOD, &params, &mut progress)
            .await?;
        Ok(Some((maker, read::<Deregistered>(&gone)?)))
    })?;
    let Some((maker, gone)) = gone else {
        return Ok(false);
    };
    match context.json {
        true => say(json!({"id": id, "registered_by": maker, "tools": gone.tools}))?,
        false => say(plain(&format!(
            "removed {id}, which {maker} had registered"
        )))?,
    }
    Ok(true)
}

fn in_file(file: &Path, error: &edit::EditError) -> Failure {
    Failure::Other(format!("{}: {error}", file.display()))
}

fn existing(file: &Path) -> Result<Option<String>, Failure> {
    match open_file(file).and_then(io::read_to_string) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read
            .map(Some)
            .map_err(|e| Failure::Other(format!("{}: {e}", file.display()))),
    }
}

/// The files the kernel reads, or would read if it were started here; the strongest first.
fn in_force(context: &Context, status: Option<&KernelStatus>) -> Result<Vec<PathBuf>, Failure> {
    if let Some((_, named)) = context.look_up.named() {
        return Ok(vec![named]);
    }
    if let Some(status) = status
        && !status.config_files.is_empty()
    {
        return Ok(status.config_files.iter().map(PathBuf::from).collect());
    }
    let here = config::load(&context.look_up, &|_| None, None);
    let here = here.map_err(|e| Failure::Other(e.to_string()))?;
    let project = here
        .in_force()
        .filter(|file| file.kind == ConfigKind::Project);
    let project = project
        .filter(|_| status.is_none())
        .map(|file| file.path.clone());
    let files: Vec<_> = project.chain(context.look_up.user_file()).collect();
    match files.is_empty() {
        true => Err(no_home()),
        false => Ok(files),
    }
}

fn no_home() -> Failure {
    Failure::Usage("there is no home; name a file with --config".into())
}

/// Where a new server goes: the file that was named, the project's when that is meant, else the user's,
/// or the one file the running kernel was given.
fn target(context: &Context, add: &Add, status: Option<&KernelStatus>) -> Result<PathBuf, Failure> {
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

fn new_server(add: &Add, folder: &Path, given: Given) -> NewServer {
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
