//! Checks the configuration: problems, settings not in force, and missing secrets.

use std::collections::BTreeSet;

use mgp_discovery::PROJECT_FILE;
use mgp_store::secrets::Namespace;

use super::CheckContext;
use super::finding::Finding;
use crate::cli::commands::servers::config_file::{files_in_force, read_if_exists};
use crate::config::named_secrets::KernelLookup;
use crate::config::{self, Severity, secret_references};

const AREA: &str = "configuration";

pub(super) fn check(cx: &CheckContext<'_>) -> Vec<Finding> {
    let mut found = match &cx.status {
        Some(status) => {
            let wrong = status.config_problems.iter();
            let mut found: Vec<_> = wrong.map(|why| Finding::broken(AREA, why)).collect();
            let waits = status.restart.iter();
            found.extend(
                waits.map(|why| Finding::warning(AREA, why).with_command("mgp down && mgp up")),
            );
            found
        }
        None => check_as_new_kernel(cx),
    };
    found.extend(check_untrusted_project(cx));
    found.extend(check_misnamed_file(cx));
    found.extend(check_secrets(cx));
    if found.is_empty() {
        let many = cx.loaded.servers.len();
        found.push(Finding::good(
            AREA,
            format!("its files can be read; servers in them: {many}"),
        ));
    }
    found
}

/// Problems for a kernel that is started here.
fn check_as_new_kernel(cx: &CheckContext<'_>) -> Vec<Finding> {
    let look_up = &cx.context.look_up;
    let loaded = match config::load_with_env(look_up, &KernelLookup::for_look_up(look_up), None) {
        Ok(loaded) => loaded,
        Err(why) => return vec![Finding::broken(AREA, why.to_string())],
    };
    let finding = |problem: &config::Problem| {
        let message = problem.render(false);
        match problem.severity {
            Severity::Warning => Finding::warning(AREA, message),
            Severity::Fatal | Severity::Server => Finding::broken(AREA, message),
        }
    };
    loaded.problems.iter().map(finding).collect()
}

fn check_untrusted_project(cx: &CheckContext<'_>) -> Option<Finding> {
    let message = match &cx.status {
        Some(status) => status.untrusted.first().map(|one| one.why.clone()),
        None => {
            let untrusted = cx.loaded.project.untrusted.as_ref();
            untrusted.map(ToString::to_string)
        }
    };
    message.map(|why| Finding::warning(AREA, why).with_command("mgp trust"))
}

/// A file next to the user's with the name of a project's: it looks as if it were read.
fn check_misnamed_file(cx: &CheckContext<'_>) -> Option<Finding> {
    let look_up = &cx.context.look_up;
    let user = look_up
        .user_file()
        .filter(|_| look_up.explicit_file().is_none())?;
    let beside = user.with_file_name(PROJECT_FILE);
    if !beside.is_file() || beside == look_up.project_file() {
        return None;
    }
    let (beside, read) = (beside.display(), user.display());
    let message = Finding::warning(
        AREA,
        format!("{beside} is not read: the file here is {read}"),
    );
    Some(if user.exists() {
        message
    } else {
        message.with_command(format!("mv '{beside}' '{read}'"))
    })
}

/// Secrets that entries refer to and that are not stored; and stored ones that cannot be read.
fn check_secrets(cx: &CheckContext<'_>) -> Vec<Finding> {
    const AREA: &str = "secrets";
    let Ok(store) = cx.context.secret_store() else {
        return Vec::new();
    };
    let kept = match store.list(Namespace::Named) {
        Ok(kept) => kept,
        Err(why) => return vec![Finding::broken(AREA, why.to_string())],
    };
    let mut found = Vec::new();
    for kept in &kept {
        if let Err(why) = store.get(Namespace::Named, &kept.name) {
            let command = format!("mgp secrets set {}", kept.name);
            found.push(Finding::broken(AREA, why.to_string()).with_command(command));
        }
    }
    let names: BTreeSet<&str> = kept.iter().map(|kept| kept.name.as_str()).collect();
    let by_command = !cx.loaded.kernel.secrets.command.is_empty();
    let files = files_in_force(cx.context, cx.status.as_ref()).unwrap_or_default();
    for file in files {
        let text = read_if_exists(&file).ok().flatten().unwrap_or_default();
        for reference in secret_references(&text) {
            if !by_command && !names.contains(reference.name.as_str()) {
                let user = reference.server.as_deref().unwrap_or("the kernel");
                let message = format!(
                    "{user} needs the secret {}, which is not kept",
                    reference.name
                );
                let command = format!("mgp secrets set {}", reference.name);
                found.push(Finding::broken(AREA, message).with_command(command));
            }
        }
    }
    if found.is_empty() && !kept.is_empty() {
        found.push(Finding::good(
            AREA,
            format!("all {} can be read", kept.len()),
        ));
    }
    found
}
