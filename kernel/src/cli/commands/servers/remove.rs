//! `mgp servers remove`: removes a server from the configuration, or deregisters it.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::discovery::{Deregister, Deregistered, List, Servers};
use mgp_protocol::mgp::kernel::Reload;
use serde_json::json;

use super::config_file::{files_in_force, read_if_exists, to_failure, write};
use super::supplied_values;
use crate::cli::client::{CliContext, name_resolution, parse_result};
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;
use crate::config::edit;

/// Removes a server from the first file that has it, or deregisters it.
pub(super) fn remove(context: &CliContext, id: &str) -> Result<(), Failure> {
    let status = context.status()?;
    let files = files_in_force(context, status.as_ref())?;
    let mut left = Vec::new();
    let mut removed = None;
    for file in &files {
        let before = read_if_exists(file)?;
        match edit::remove_entry(before.as_deref().unwrap_or_default(), id) {
            Ok(text) if removed.is_none() => {
                write(context, file, before.as_deref(), &text, false)?;
                if let Some(home) = context.look_up.secrets_folder() {
                    let prefix = supplied_values::secret_prefix(&home, id, file);
                    supplied_values::remove_stored(context.secret_store().ok().as_ref(), &prefix);
                    supplied_values::remove_files(&supplied_values::secret_folder(&home, id, file));
                }
                removed = Some(file);
            }
            Ok(_) => left.push(file),
            Err(edit::EditError::UnknownId(_)) => {}
            Err(e) => return Err(to_failure(file, &e)),
        }
    }
    if removed.is_none() && status.is_some() && deregister(context, id)? {
        return Ok(());
    }
    let Some(file) = removed else {
        if status.is_some() {
            context
                .with_kernel(async |client| name_resolution::resolve_server(client, id).await)?;
        }
        let read: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
        return Err(Failure::Other(format!(
            "there is no server `{id}` in {}",
            read.join(", ")
        )));
    };
    for file in left {
        print_error(format_args!(
            "note: {} has a server `{id}` too, which counts now",
            file.display()
        ));
    }
    if status.is_some() {
        context.call(Reload::METHOD, &json!({}), format!("stopping {id}"))?;
    }
    if context.json {
        print_line(json!({"id": id, "file": file}))
    } else {
        print_line(format_args!("removed {id} from {}", file.display()))
    }
}

/// Removes a registered server; false if there is none.
fn deregister(context: &CliContext, id: &str) -> Result<bool, Failure> {
    let gone = context.with_kernel(async |client| {
        let doing = format!("stopping {id}");
        let answer = client.call(List::METHOD, &json!({}), &doing).await?;
        let Servers { servers } = parse_result(&answer)?;
        let registered = servers.into_iter().find(|server| server.id == id);
        let Some(maker) = registered.and_then(|server| server.created_by) else {
            return Ok(None);
        };
        let params = json!({"id": id, "reason": "mgp servers remove"});
        let gone = client.call(Deregister::METHOD, &params, doing).await?;
        Ok(Some((maker, parse_result::<Deregistered>(&gone)?)))
    })?;
    let Some((maker, gone)) = gone else {
        return Ok(false);
    };
    if context.json {
        print_line(json!({"id": id, "registered_by": maker, "tools": gone.tools}))?
    } else {
        print_line(sanitize_line(&format!(
            "removed {id}, which {maker} had registered"
        )))?
    }
    Ok(true)
}
