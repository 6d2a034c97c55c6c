//! What entries said before they were updated, so that one command takes an update back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::config::edit;

/// Updates that are remembered, one for each server; the oldest is forgotten for another one.
const MOST: usize = 256;
/// In the data folder.
const FILE: &str = "updates.json";

/// The last update of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RememberedUpdate {
    pub(super) id: String,
    /// Whose entry it is.
    pub(super) file: PathBuf,
    /// Which argument was changed.
    pub(super) argument: usize,
    /// What it said, and what it says since.
    pub(super) before: String,
    pub(super) after: String,
    pub(super) from: Option<String>,
    pub(super) to: String,
}

/// Where they are kept; `None` where there is no home.
fn place(context: &CliContext) -> Option<PathBuf> {
    let folder = context.bases.data_dir(context.told_data_dir());
    Some(folder.ok()?.join(FILE))
}

fn all(place: &Path) -> Vec<RememberedUpdate> {
    let text = fs::read_to_string(place).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The last update of a server in this file.
pub(super) fn of(context: &CliContext, id: &str, file: &Path) -> Option<RememberedUpdate> {
    let all = all(&place(context)?);
    all.into_iter()
        .find(|kept| kept.id == id && kept.file == file)
}

/// Keeps an update in the place of an earlier one; `None` forgets it.
pub(super) fn keep(
    context: &CliContext,
    (id, file): (&str, &Path),
    update: Option<RememberedUpdate>,
) -> Result<(), Failure> {
    let Some(place) = place(context) else {
        return Ok(());
    };
    let mut all = all(&place);
    all.retain(|kept| kept.id != id || kept.file != file);
    all.extend(update);
    let first = all.len().saturating_sub(MOST);
    let text = serde_json::to_string(&all[first..]).map_err(io::Error::from)?;
    edit::write(&place, &text)?;
    Ok(())
}
