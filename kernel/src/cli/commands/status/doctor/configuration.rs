//! The configuration: what is wrong with its files, what of it does not hold, and secrets that are missing.

use std::collections::BTreeSet;

use mgp_discovery::config::PROJECT_FILE;
use mgp_store::secrets::Namespace;

use super::Patient;
use super::finding::DoctorFinding;
use crate::cli::commands::servers::config_file::{existing, in_force};
use crate::config::named_secrets::KernelLookup;
use crate::config::{self, Severity, secret_references};

const AREA: &str = "configuration";

pub(super) fn look(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    let mut found = match &patient.status {
        Some(status) => {
            let wrong = status.config_problems.iter();
            let mut found: Vec<_> = wrong.map(|why| DoctorFinding::broken(AREA, why)).collect();
            let waits = status.restart.iter();
            found.extend(
                waits.map(|why| DoctorFinding::warning(AREA, why).mended_by("mgp down && mgp up")),
            );
            found
        }
        None => as_it_would_be(patient),
    };
    found.extend(untrusted(patient));
    found.extend(unread(patient));
    found.extend(secrets(patient));
    if found.is_empty() {
        let many = patient.loaded.servers.len();
        found.push(DoctorFinding::good(
            AREA,
            format!("its files can be read; servers in them: {many}"),
        ));
    }
    found
}

/// What a kernel that is started here would say of it.
fn as_it_would_be(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    let look_up = &patient.context.look_up;
    let loaded = match config::load_with(look_up, &KernelLookup::of(look_up), None) {
        Ok(loaded) => loaded,
        Err(why) => return vec![DoctorFinding::broken(AREA, why.to_string())],
    };
    let finding = |problem: &config::Problem| {
        let told = problem.render(false);
        match problem.severity {
            Severity::Warning => DoctorFinding::warning(AREA, told),
            Severity::Fatal | Severity::Entry => DoctorFinding::broken(AREA, told),
        }
    };
    loaded.problems.iter().map(finding).collect()
}

fn untrusted(patient: &Patient<'_>) -> Option<DoctorFinding> {
    let told = match &patient.status {
        Some(status) => status.untrusted.first().map(|one| one.why.clone()),
        None => {
            let untrusted = patient.loaded.project.untrusted.as_ref();
            untrusted.map(ToString::to_string)
        }
    };
    told.map(|why| DoctorFinding::warning(AREA, why).mended_by("mgp trust"))
}

/// A file beside the user's that has the name of a project's: it looks as if it were read.
fn unread(patient: &Patient<'_>) -> Option<DoctorFinding> {
    let look_up = &patient.context.look_up;
    let user = look_up.user_file().filter(|_| look_up.named().is_none())?;
    let beside = user.with_file_name(PROJECT_FILE);
    if !beside.is_file() || beside == look_up.project_file() {
        return None;
    }
    let (beside, read) = (beside.display(), user.display());
    let told = DoctorFinding::warning(
        AREA,
        format!("{beside} is not read: the file here is {read}"),
    );
    Some(match user.exists() {
        true => told,
        false => told.mended_by(format!("mv '{beside}' '{read}'")),
    })
}

/// Secrets that entries refer to and that nobody kept; and whether those that are kept can be read.
fn secrets(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    const AREA: &str = "secrets";
    let Ok(store) = patient.context.secret_store() else {
        return Vec::new();
    };
    let kept = match store.list(Namespace::Named) {
        Ok(kept) => kept,
        Err(why) => return vec![DoctorFinding::broken(AREA, why.to_string())],
    };
    let mut found = Vec::new();
    for kept in &kept {
        if let Err(why) = store.get(Namespace::Named, &kept.name) {
            let command = format!("mgp secrets set {}", kept.name);
            found.push(DoctorFinding::broken(AREA, why.to_string()).mended_by(command));
        }
    }
    let names: BTreeSet<&str> = kept.iter().map(|kept| kept.name.as_str()).collect();
    let by_command = !patient.loaded.kernel.secrets.command.is_empty();
    let files = in_force(patient.context, patient.status.as_ref()).unwrap_or_default();
    for file in files {
        let text = existing(&file).ok().flatten().unwrap_or_default();
        for reference in secret_references(&text) {
            if !by_command && !names.contains(reference.name.as_str()) {
                let user = reference.server.as_deref().unwrap_or("the kernel");
                let told = format!(
                    "{user} needs the secret {}, which is not kept",
                    reference.name
                );
                let command = format!("mgp secrets set {}", reference.name);
                found.push(DoctorFinding::broken(AREA, told).mended_by(command));
            }
        }
    }
    if found.is_empty() && !kept.is_empty() {
        found.push(DoctorFinding::good(
            AREA,
            format!("all {} can be read", kept.len()),
        ));
    }
    found
}
