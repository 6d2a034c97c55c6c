//! Stores what entries contained before updates, to undo them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::config::edit;

/// Stored updates, one for each server; the oldest is dropped.
const UPDATES_MAX: usize = 256;
/// In the data folder.
const FILE_NAME: &str = "updates.json";

/// The last update of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UpdateRecord {
    pub(super) id: String,
    /// The file of the entry.
    pub(super) file: PathBuf,
    /// The index of the changed argument.
    pub(super) argument: usize,
    /// Its text before and after the update.
    pub(super) before: String,
    pub(super) after: String,
    pub(super) from: Option<String>,
    pub(super) to: String,
}

/// `None` without a home.
fn file_path(context: &CliContext) -> Option<PathBuf> {
    let folder = context
        .base_dirs
        .data_dir(context.configured_or_named_data_dir());
    Some(folder.ok()?.join(FILE_NAME))
}

fn read_all(place: &Path) -> Vec<UpdateRecord> {
    let text = fs::read_to_string(place).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The last update of a server in this file.
pub(super) fn find(context: &CliContext, id: &str, file: &Path) -> Option<UpdateRecord> {
    let all = read_all(&file_path(context)?);
    all.into_iter()
        .find(|kept| kept.id == id && kept.file == file)
}

/// Stores an update, replacing an earlier one; `None` removes it.
pub(super) fn save(
    context: &CliContext,
    (id, file): (&str, &Path),
    update: Option<UpdateRecord>,
) -> Result<(), Failure> {
    let Some(place) = file_path(context) else {
        return Ok(());
    };
    let mut all = read_all(&place);
    all.retain(|kept| kept.id != id || kept.file != file);
    all.extend(update);
    let first = all.len().saturating_sub(UPDATES_MAX);
    let text = serde_json::to_string(&all[first..]).map_err(io::Error::from)?;
    edit::write_file(&place, &text)?;
    Ok(())
}
