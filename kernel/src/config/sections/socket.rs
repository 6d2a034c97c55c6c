//! `[socket]` and `[data]`: the owner's socket, and the data folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mgp_protocol::ids::AgentId;

use crate::config::parsing::Section;

/// `[socket]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketConfig {
    /// The path of the socket; `None` for the runtime folder.
    pub(crate) path: Option<PathBuf>,
    /// Other users of this machine, by name or uid, and their agents.
    pub(crate) users: BTreeMap<String, AgentId>,
}

/// `[data]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataConfig {
    /// The folder for persistent state; `None` for the user's data folder.
    pub(crate) dir: Option<PathBuf>,
}

impl SocketConfig {
    /// Relative paths start at `folder`, which is the file's.
    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>, folder: &Path) {
        read_path(&mut section, "path", folder, &mut self.path);
        for (user, agent) in section.text_map("users") {
            match AgentId::parse(agent.get_ref()) {
                Ok(id) => drop(self.users.insert(user.to_owned(), id)),
                Err(why) => {
                    section.reject(agent.span(), format!("`users.{user}` in [socket]: {why}"))
                }
            }
        }
        section.finish();
    }
}

impl DataConfig {
    pub(crate) fn read(&mut self, mut section: Section<'_, '_, '_>, folder: &Path) {
        read_path(&mut section, "dir", folder, &mut self.dir);
        section.finish();
    }
}

fn read_path(
    section: &mut Section<'_, '_, '_>,
    key: &'static str,
    folder: &Path,
    into: &mut Option<PathBuf>,
) {
    match section.text(key) {
        Some(text) if text.get_ref().is_empty() => {
            section.reject(
                text.span(),
                format!("`{key}` in {} is empty", section.name()),
            );
        }
        Some(text) => *into = Some(folder.join(text.get_ref())),
        None => {}
    }
}
