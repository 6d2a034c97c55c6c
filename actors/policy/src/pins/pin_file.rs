//! The pins of one server and their file. A marker elsewhere records that the file exists, so that its loss
//! is noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mgp_engine::policy::pins::{NotApproved, Pin, PinCheck, PinRules, Pins};
use mgp_engine::tools::catalog::CatalogTool;
use mgp_protocol::ids::ServerId;
use serde::{Deserialize, Serialize};

use super::ToolChange;
use mgp_store::atomic_file;
use mgp_store::regular_file;

/// Longest definition, in bytes, that is stored to be shown beside a changed one. Of a longer one only the
/// pin is stored.
const TEXT_MAX: usize = 16 << 10;

/// The contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Page {
    pins: Pins,
    /// Definitions as approved, by tool; read when something changed and when the server starts.
    texts: BTreeMap<String, Box<str>>,
    /// The tools of the last list, in its order; `None` in a file of an older kernel.
    listed: Option<Vec<Box<str>>>,
}

/// The pins of one server.
#[derive(Debug)]
pub(super) struct PinFile {
    folder: PathBuf,
    path: PathBuf,
    pins: Pins,
    /// The pins, as they are in the file.
    kept: Pins,
    /// The tools of the last list, in its order.
    listed: Option<Vec<Box<str>>>,
    /// The same, as in the file.
    stored_list: Option<Vec<Box<str>>>,
    server: ServerId,
}

impl PinFile {
    /// The pins of a server; none when there is no file.
    pub(super) fn read(folder: &Path, server: &ServerId) -> Result<Self, String> {
        let path = place(folder, server);
        let page = match page(&path)? {
            Some(page) => {
                // Without the marker only the loss of the file would go unnoticed.
                let _ = mark(folder, server);
                page
            }
            None if marked(folder, server).exists() => {
                return Err(format!("{} is missing: {}", path.display(), remedy(&path)));
            }
            None => Page::default(),
        };
        Ok(Self {
            folder: folder.to_owned(),
            path,
            kept: page.pins.clone(),
            pins: page.pins,
            stored_list: page.listed.clone(),
            listed: page.listed,
            server: server.clone(),
        })
    }

    /// The definitions of the tools that the server listed last, in its order. Without those that wait for a
    /// person, and those that are too long to be stored.
    ///
    /// # Errors
    /// Why the file cannot be used, in words.
    pub(super) fn last_list(folder: &Path, server: &ServerId) -> Result<Vec<Arc<str>>, String> {
        let mut page = page(&place(folder, server))?.unwrap_or_default();
        let all = || page.texts.keys().map(|name| name.as_str().into()).collect();
        let listed = page.listed.take().unwrap_or_else(all);
        let unchanged = listed
            .iter()
            .filter(|name| page.pins.is_unchanged(server, name));
        let texts = unchanged.filter_map(|name| page.texts.get(&**name));
        Ok(texts.map(|text| Arc::from(&**text)).collect())
    }

    /// Removes the file of a server, if there is one.
    pub(super) fn remove(folder: &Path, server: &ServerId) -> io::Result<()> {
        match fs::remove_file(marked(folder, server)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        match fs::remove_file(place(folder, server)) {
            Ok(()) => atomic_file::sync_folder(&place(folder, server)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Compares tools with their pins. Returns those that changed, and the names of unknown ones that are
    /// to be blocked.
    pub(super) fn see(
        &mut self,
        server: &ServerId,
        tools: &[Arc<CatalogTool>],
        rules: &PinRules,
    ) -> (Vec<ToolChange>, BTreeSet<String>) {
        let (mut changes, mut unknown) = (Vec::new(), BTreeSet::new());
        self.listed = Some(tools.iter().map(|tool| (&*tool.own_name).into()).collect());
        for tool in tools {
            let Some(pin) = Pin::of(tool.sent(), &rules.ignored) else {
                continue;
            };
            match self.pins.see(server, &tool.own_name, pin, rules.mode) {
                PinCheck::Unwatched | PinCheck::First | PinCheck::Same => {}
                PinCheck::TooMany { blocked } => {
                    if blocked {
                        unknown.insert(tool.own_name.to_string());
                    }
                }
                PinCheck::Changed {
                    changed,
                    news,
                    blocked,
                } => changes.push(ToolChange {
                    tool: tool.clone(),
                    pin,
                    changed,
                    news,
                    blocked,
                }),
            }
        }
        (changes, unknown)
    }

    /// True when a person has yet to decide about this tool.
    pub(super) fn waits(&self, server: &ServerId, tool: &str) -> bool {
        let pending = self.pins.pending();
        pending
            .iter()
            .any(|p| p.server == *server && p.tool == tool)
    }

    pub(super) fn approve(
        &mut self,
        server: &ServerId,
        tool: &str,
        pin: Pin,
        by: &str,
    ) -> Result<(), NotApproved> {
        self.pins.approve(server, tool, pin, by)
    }

    pub(super) fn deny(
        &mut self,
        server: &ServerId,
        tool: &str,
        pin: Pin,
    ) -> Result<(), NotApproved> {
        self.pins.deny(server, tool, pin)
    }

    /// The pins.
    pub(super) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Definitions as they were approved, where they are stored.
    pub(super) fn texts(&self) -> BTreeMap<String, Box<str>> {
        let page = page(&self.path).ok().flatten();
        page.map_or_else(BTreeMap::new, |page| page.texts)
    }

    /// Brings the file up to date, with the definitions of those of `tools` that count as approved. On disk
    /// when this returns; not written if nothing changed.
    pub(super) fn keep(&mut self, tools: &[Arc<CatalogTool>], rules: &PinRules) -> io::Result<()> {
        if self.pins == self.kept && self.listed == self.stored_list {
            return Ok(());
        }
        let mut texts = self.texts();
        for tool in tools {
            let approved = Pin::of(tool.sent(), &rules.ignored)
                .is_some_and(|pin| self.pins.approved(&self.server, &tool.own_name) == Some(pin));
            if approved && tool.sent().len() <= TEXT_MAX {
                texts.insert(tool.own_name.to_string(), (&**tool.sent()).into());
            } else if approved {
                texts.remove(&*tool.own_name);
            }
        }
        let page = Page {
            pins: self.pins.clone(),
            texts,
            listed: self.listed.clone(),
        };
        private_folder(&self.path)?;
        atomic_file::write(&self.path, &serde_json::to_vec(&page)?)?;
        mark(&self.folder, &self.server)?;
        self.kept = page.pins;
        self.stored_list = page.listed;
        Ok(())
    }
}

fn place(folder: &Path, server: &ServerId) -> PathBuf {
    folder.join(format!("{server}.json"))
}

/// The marker that the file exists.
fn marked(folder: &Path, server: &ServerId) -> PathBuf {
    folder.with_file_name("pinned").join(server.as_str())
}

fn mark(folder: &Path, server: &ServerId) -> io::Result<()> {
    let mark = marked(folder, server);
    if mark.exists() {
        return Ok(());
    }
    private_folder(&mark)?;
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(0o600);
    open.open(&mark)?;
    atomic_file::sync_folder(&mark)
}

/// The contents of a file; empty when there is none.
fn page(path: &Path) -> Result<Option<Page>, String> {
    match regular_file::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| format!("{} is damaged ({error}): {}", path.display(), remedy(path))),
    }
}

fn remedy(path: &Path) -> String {
    format!(
        "nobody knows what its tools were; put a copy back, or take them as they are now with `echo '{{}}' > {}`",
        path.display()
    )
}

fn private_folder(of: &Path) -> io::Result<()> {
    let folder = of.parent().unwrap_or(Path::new("."));
    atomic_file::make_folder(folder)
}
