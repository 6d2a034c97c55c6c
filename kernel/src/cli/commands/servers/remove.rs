//! `mgp servers remove`: out of the configuration, or out of what was registered while the kernel ran.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::discovery::{Deregister, Deregistered, List, Servers};
use mgp_protocol::mgp::kernel::Reload;
use serde_json::json;

use super::config_file::{existing, in_file, in_force, write};
use super::secrets;
use crate::cli::client::{CliContext, names, read};
use crate::cli::failure::Failure;
use crate::cli::print::{report, say};
use crate::cli::words::plain;
use crate::config::edit;

/// Takes a server out of the first file that has it, or out of those that were registered.
pub(super) fn remove(context: &CliContext, id: &str) -> Result<(), Failure> {
    let status = context.status()?;
    let files = in_force(context, status.as_ref())?;
    let mut left = Vec::new();
    let mut removed = None;
    for file in &files {
        let before = existing(file)?;
        match edit::remove(before.as_deref().unwrap_or_default(), id) {
            Ok(text) if removed.is_none() => {
                write(context, file, before.as_deref(), &text, false)?;
                if let Some(home) = context.look_up.secrets_folder() {
                    let prefix = secrets::prefix(&home, id, file);
                    secrets::forget(context.secret_store().ok().as_ref(), &prefix);
                    secrets::forget_files(&secrets::folder(&home, id, file));
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
            context.with_kernel(async |client| names::server(client, id).await)?;
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
        context.ask(Reload::METHOD, &json!({}), format!("stopping {id}"))?;
    }
    match context.json {
        true => say(json!({"id": id, "file": file})),
        false => say(format_args!("removed {id} from {}", file.display())),
    }
}

/// Takes out a server that was registered while the kernel ran; false when there is none.
fn deregister(context: &CliContext, id: &str) -> Result<bool, Failure> {
    let gone = context.with_kernel(async |client| {
        let doing = format!("stopping {id}");
        let answer = client.ask(List::METHOD, &json!({}), &doing).await?;
        let Servers { servers } = read(&answer)?;
        let registered = servers.into_iter().find(|server| server.id == id);
        let Some(maker) = registered.and_then(|server| server.created_by) else {
            return Ok(None);
        };
        let params = json!({"id": id, "reason": "mgp servers remove"});
        let gone = client.ask(Deregister::METHOD, &params, doing).await?;
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
