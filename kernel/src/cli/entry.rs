//! `mgp servers add|remove`: edits of the configuration, taken up by the kernel when one runs.

use std::fs;
use std::path::{Path, PathBuf};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::discovery::{Deregister, Deregistered, List, Servers};
use mgp_protocol::mgp::kernel::{KernelStatus, Reload, Status};
use serde_json::json;

use super::client::{Opening, read};
use super::command::Add;
use super::context::Context;
use super::detach;
use super::failure::Failure;
use super::output::say;
use super::progress::Progress;
use super::servers::{CONNECTED, start, tell};
use super::words::plain;
use crate::config;
use crate::config::edit::{self, NewServer};

/// Writes a server down, and has it started when a kernel runs.
pub(super) fn add(context: &Context, add: &Add) -> Result<(), Failure> {
    let server = new_server(add, &context.look_up.folder)?;
    let status = detach::status(context)?;
    let file = target(context, status.as_ref())?;
    let text = edit::add(&read_or_empty(&file)?, &server).map_err(|e| in_file(&file, &e))?;
    if let Some(problem) = config::judge(&text, &file, &server.id) {
        return Err(Failure::Usage(problem.message));
    }
    edit::write(&file, &text)?;
    if !context.json {
        say(format_args!("added {} to {}", server.id, file.display()))?;
    }
    match status {
        Some(_) => take_up(context, &file, &server),
        None if context.json => say(json!({"id": server.id, "file": file})),
        None => Ok(()),
    }
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
        _ => start(context, id),
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
        match edit::remove(&read_or_empty(file)?, id) {
            Ok(text) if removed.is_none() => {
                edit::write(file, &text)?;
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
        let read: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        return Err(Failure::Other(format!(
            "there is no server `{id}` in {}",
            read.join(", ")
        )));
    };
    for file in left {
        eprintln!(
            "note: {} has a server `{id}` too, which counts now",
            file.display()
        );
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

fn read_or_empty(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|e| Failure::Other(format!("{}: {e}", file.display()))),
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
    let project = context.look_up.project_file();
    let project = Some(project).filter(|file| status.is_none() && file.exists());
    let files: Vec<_> = project
        .into_iter()
        .chain(context.look_up.user_file())
        .collect();
    match files.is_empty() {
        true => Err(Failure::Usage(
            "there is no home; name a file with --config".into(),
        )),
        false => Ok(files),
    }
}

/// Where a new server goes: the strongest file there is, or the user's.
fn target(context: &Context, status: Option<&KernelStatus>) -> Result<PathBuf, Failure> {
    let files = in_force(context, status)?;
    Ok(files
        .into_iter()
        .next()
        .expect("at least one file is in force"))
}

fn new_server(add: &Add, folder: &Path) -> Result<NewServer, Failure> {
    let mut command = add.command.clone();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        *program = from_here(program, folder);
    }
    let variable = |word: &String| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (word.clone(), format!("${{{word}}}")),
    };
    let header = |word: &String| match word.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failure::Usage(format!(
            "`--header {word}` is not NAME=VALUE"
        ))),
    };
    Ok(NewServer {
        id: add.id.clone(),
        command,
        url: add.url.clone(),
        env: add.env.iter().map(variable).collect(),
        headers: add.header.iter().map(header).collect::<Result<_, _>>()?,
        cwd: add.cwd.as_ref().map(|cwd| from_here(cwd, folder)),
        autostart: add.no_autostart.then_some(false),
        trust_level: add.trust.clone(),
        restart_policy: add.restart.clone(),
    })
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
