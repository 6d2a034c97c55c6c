//! The pins of one server and their file. A marker elsewhere records that the file exists, so that its loss is
//! noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mgp_engine::policy::pins::{
    Definition, DefinitionKind, Effect, Pin, PinApprovalError, PinCheck, PinMode, PinRules, Pins,
    Sight,
};
use mgp_protocol::ids::ServerId;
use serde::{Deserialize, Serialize};

use super::ToolChange;
use super::scan::Scan;
use mgp_screening::definitions::Judgement;
use mgp_store::atomic_file;
use mgp_store::regular_file;

/// Longest definition, in bytes, that is stored for comparison with a changed one. Of a longer one only the pin is
/// stored.
const TEXT_MAX: usize = 16 << 10;

/// The contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Page {
    pins: Pins,
    /// Approved definitions by tool; read when something changed and when the server starts.
    texts: BTreeMap<String, Box<str>>,
    /// The tools of the last list, in its order; `None` in files of older kernels.
    listed: Option<Vec<Box<str>>>,
}

/// The pins of one server.
#[derive(Debug)]
pub(super) struct PinFile {
    folder: PathBuf,
    path: PathBuf,
    pins: Pins,
    /// The pins as stored in the file.
    stored_pins: Pins,
    /// The tools of the last list, in its order.
    listed: Option<Vec<Box<str>>>,
    /// `listed` as stored in the file.
    stored_list: Option<Vec<Box<str>>>,
    server: ServerId,
}

impl PinFile {
    /// The pins of a server; none when there is no file.
    pub(super) fn read(folder: &Path, server: &ServerId) -> Result<Self, String> {
        let path = file_path(folder, server);
        let page = match read_page(&path)? {
            Some(page) => {
                // A missing marker only hides the loss of the file.
                let _ = write_marker(folder, server);
                page
            }
            None if marker_path(folder, server).exists() => {
                return Err(format!(
                    "{} is missing: {}",
                    path.display(),
                    describe_remedy(&path)
                ));
            }
            None => Page::default(),
        };
        Ok(Self {
            folder: folder.to_owned(),
            path,
            stored_pins: page.pins.clone(),
            pins: page.pins,
            stored_list: page.listed.clone(),
            listed: page.listed,
            server: server.clone(),
        })
    }

    /// The definitions of the tools that the server listed last, in its order. Without those that are pending, and those
    /// that are too long to store.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(super) fn last_list(folder: &Path, server: &ServerId) -> Result<Vec<Arc<str>>, String> {
        let mut page = read_page(&file_path(folder, server))?.unwrap_or_default();
        let all = || page.texts.keys().map(|name| name.as_str().into()).collect();
        let listed = page.listed.take().unwrap_or_else(all);
        let unchanged = listed
            .iter()
            .filter(|name| page.pins.is_unchanged(server, name));
        let texts = unchanged.filter_map(|name| page.texts.get(&**name));
        Ok(texts.map(|text| Arc::from(&**text)).collect())
    }

    /// Removes the file of a server, if it exists.
    pub(super) fn remove(folder: &Path, server: &ServerId) -> io::Result<()> {
        match fs::remove_file(marker_path(folder, server)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        match fs::remove_file(file_path(folder, server)) {
            Ok(()) => atomic_file::sync_folder(&file_path(folder, server)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Compares tools with their pins. Returns the changed ones, and the names of unknown ones to block.
    pub(super) fn compare(
        &mut self,
        server: &ServerId,
        tools: &[Definition],
        rules: &PinRules,
        scan: &Scan<'_>,
    ) -> (Vec<ToolChange>, BTreeSet<String>) {
        let (mut changes, mut unknown) = (Vec::new(), BTreeSet::new());
        let listed = tools.iter().filter(|tool| !is_text(tool.kind));
        self.listed = Some(listed.map(|tool| (&*tool.own_name).into()).collect());
        for tool in tools {
            let Some(pin) = tool.pin(&rules.ignored) else {
                continue;
            };
            let named = (&*tool.own_name, tool.kind);
            // Only where the operator wants things blocked: it costs time and memory, and is wrong now and then.
            let is_judged = rules.mode == PinMode::Block
                && !self.pins.is_approved(server, &tool.own_name, &pin);
            let judged = match is_judged {
                true => scan.judge(tool),
                false => Judgement::default(),
            };
            let sight = match judged.is_held() {
                true => Sight::Held,
                false => Sight::Clear,
            };
            let mode = rules.mode;
            match self.pins.check_definition(server, named, pin, mode, sight) {
                PinCheck::Disabled | PinCheck::New | PinCheck::Unchanged => {}
                PinCheck::TooMany { blocked } => {
                    if blocked {
                        unknown.insert(tool.own_name.to_string());
                    }
                }
                PinCheck::Changed {
                    changed,
                    is_new,
                    blocked,
                } => changes.push(ToolChange {
                    tool: tool.clone(),
                    pin,
                    changed,
                    is_new,
                    is_blocked: blocked,
                    is_first: self.pins.is_unapproved(server, &tool.own_name),
                    judged,
                }),
            }
        }
        (changes, unknown)
    }

    /// Whether the operator has yet to decide about this tool.
    pub(super) fn is_pending(&self, server: &ServerId, tool: &str) -> bool {
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
    ) -> Result<(), PinApprovalError> {
        self.pins.approve(server, tool, pin, by)
    }

    pub(super) fn deny(
        &mut self,
        server: &ServerId,
        tool: &str,
        pin: Pin,
    ) -> Result<(), PinApprovalError> {
        self.pins.deny(server, tool, pin)
    }

    /// A person confirmed the effects of tools, or took that back. On disk when this returns; nothing is changed after
    /// an error.
    pub(super) fn confirm_effects(
        &mut self,
        effects: &BTreeMap<String, Option<Effect>>,
        rules: &PinRules,
    ) -> Result<(), String> {
        let mut confirmed = self.pins.clone();
        for (tool, effect) in effects {
            confirmed
                .confirm_effect(&self.server, tool, *effect)
                .map_err(|error| error.to_string())?;
        }
        let earlier = std::mem::replace(&mut self.pins, confirmed);
        self.save(&[], rules).map_err(|error| {
            self.pins = earlier;
            format!("cannot write the pins: {error}")
        })
    }

    /// The confirmed effects.
    pub(super) fn effects(&self) -> BTreeMap<String, Effect> {
        let effects = self.pins.effects(&self.server);
        effects
            .map(|(tool, effect)| (tool.to_owned(), effect))
            .collect()
    }

    pub(super) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The approved definitions that are stored.
    pub(super) fn texts(&self) -> BTreeMap<String, Box<str>> {
        let page = read_page(&self.path).ok().flatten();
        page.map_or_else(BTreeMap::new, |page| page.texts)
    }

    /// Writes the file, with the definitions of those of `tools` that count as approved. On disk when this returns; skipped
    /// if nothing changed.
    pub(super) fn save(&mut self, tools: &[Definition], rules: &PinRules) -> io::Result<()> {
        if self.pins == self.stored_pins && self.listed == self.stored_list {
            return Ok(());
        }
        let mut texts = self.texts();
        for tool in tools {
            let approved = tool.pin(&rules.ignored).is_some_and(|pin| {
                self.pins.approved_pin(&self.server, &tool.own_name) == Some(pin)
            });
            if approved && tool.text.len() <= TEXT_MAX {
                texts.insert(tool.own_name.to_string(), (&*tool.text).into());
            } else if approved {
                texts.remove(&*tool.own_name);
            }
        }
        let page = Page {
            pins: self.pins.clone(),
            texts,
            listed: self.listed.clone(),
        };
        create_private_folder(&self.path)?;
        atomic_file::write(&self.path, &serde_json::to_vec(&page)?)?;
        write_marker(&self.folder, &self.server)?;
        self.stored_pins = page.pins;
        self.stored_list = page.listed;
        Ok(())
    }
}

/// Whether it is no tool and no skill, so that it stands in no list before the first connection.
fn is_text(kind: DefinitionKind) -> bool {
    matches!(kind, DefinitionKind::Prompt | DefinitionKind::Instructions)
}

fn file_path(folder: &Path, server: &ServerId) -> PathBuf {
    folder.join(format!("{server}.json"))
}

fn marker_path(folder: &Path, server: &ServerId) -> PathBuf {
    folder.with_file_name("pinned").join(server.as_str())
}

fn write_marker(folder: &Path, server: &ServerId) -> io::Result<()> {
    let marker = marker_path(folder, server);
    if marker.exists() {
        return Ok(());
    }
    create_private_folder(&marker)?;
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).mode(0o600);
    open.open(&marker)?;
    atomic_file::sync_folder(&marker)
}

/// The contents of a file; `None` if it does not exist.
fn read_page(path: &Path) -> Result<Option<Page>, String> {
    match regular_file::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            format!(
                "{} is damaged ({error}): {}",
                path.display(),
                describe_remedy(path)
            )
        }),
    }
}

fn describe_remedy(path: &Path) -> String {
    format!(
        "the approved definitions are lost; restore a copy, or accept the current ones with `echo '{{}}' > {}`",
        path.display()
    )
}

pub(super) fn create_private_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    atomic_file::create_folder(folder)
}
