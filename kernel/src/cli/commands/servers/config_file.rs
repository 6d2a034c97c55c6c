//! The files of the configuration that `mgp servers add|remove` edit.

use std::io;
use std::path::{Path, PathBuf};

use mgp_discovery::ConfigKind;
use mgp_protocol::mgp::kernel::KernelStatus;
use mgp_store::regular_file;

use crate::cli::client::CliContext;
use crate::cli::commands::trust::record_trust;
use crate::cli::failure::Failure;
use crate::config;
use crate::config::edit;
use crate::trust::{self, TrustStore};

pub(super) fn to_failure(file: &Path, error: &edit::EditError) -> Failure {
    Failure::Other(format!("{}: {error}", file.display()))
}

pub(in crate::cli::commands) fn read_if_exists(file: &Path) -> Result<Option<String>, Failure> {
    match regular_file::open(file).and_then(io::read_to_string) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read
            .map(Some)
            .map_err(|e| Failure::Other(format!("{}: {e}", file.display()))),
    }
}

/// Rejects the write if the file changed since it was read.
pub(super) fn check_unchanged(file: &Path, before: Option<&str>) -> Result<(), Failure> {
    let now = read_if_exists(file)?.unwrap_or_default();
    if now == before.unwrap_or_default() {
        Ok(())
    } else {
        Err(Failure::Other(format!(
            "{} was changed meanwhile, and was not written; type the command again",
            file.display()
        )))
    }
}

/// The files that the kernel reads, or would read if started here; the strongest first.
pub(in crate::cli::commands) fn files_in_force(
    context: &CliContext,
    status: Option<&KernelStatus>,
) -> Result<Vec<PathBuf>, Failure> {
    if let Some((_, named)) = context.look_up.explicit_file() {
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
        .files_in_force()
        .filter(|file| file.kind == ConfigKind::Project);
    let project = project
        .filter(|_| status.is_none())
        .map(|file| file.path.clone());
    let files: Vec<_> = project.chain(context.look_up.user_file()).collect();
    if files.is_empty() {
        Err(no_home_failure())
    } else {
        Ok(files)
    }
}

pub(super) fn no_home_failure() -> Failure {
    Failure::Usage("there is no home; name a file with --config".into())
}

/// Writes a configuration file. A project's file that was trusted or absent is trusted afterwards, because the user
/// typed the change. Returns whether it is trusted now.
pub(super) fn write(
    context: &CliContext,
    file: &Path,
    before: Option<&str>,
    text: &str,
    project: bool,
) -> Result<bool, Failure> {
    let book = TrustStore::open(context.look_up.trust_file().as_deref());
    let place = trust::trusted_path(file).ok();
    let known = place.as_deref().and_then(|place| book.find(place));
    let trusted = match before {
        Some(before) => known.is_some_and(|known| known.blake3 == trust::hash(before)),
        None => project,
    };
    check_unchanged(file, before)?;
    edit::write_file(file, text)?;
    // Only now: until the file is trusted, a running kernel keeps its configuration.
    if let (true, Ok(place)) = (trusted, trust::trusted_path(file)) {
        record_trust(context, &place, text)?;
    }
    Ok(trusted)
}

/// Whether only the operator starts the server of this entry.
pub(super) fn is_manual(entry: &toml::Table) -> bool {
    entry.get("autostart").and_then(toml::Value::as_bool) == Some(false)
        || entry.get("start").and_then(toml::Value::as_str) == Some("manual")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The user is prompted between read and write, and other commands may write the file.
    #[test]
    fn a_file_that_was_changed_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mgp.toml");
        assert!(check_unchanged(&file, None).is_ok());
        assert!(check_unchanged(&file, Some("")).is_ok());
        std::fs::write(&file, "a = 1\n").unwrap();
        assert!(check_unchanged(&file, Some("a = 1\n")).is_ok());
        for before in [None, Some("a = 2\n")] {
            let refused = check_unchanged(&file, before).unwrap_err().to_string();
            assert!(refused.contains("changed meanwhile"), "{refused}");
        }
    }
}
