//! Skills over MCP (SEP-2640): the newest entries, as visible in a merged view, and the digests that files are verified
//! against.

mod search;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mgp_json::{Splice, elements, member, members, quote, unquote};
use mgp_protocol::ids::ServerId;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::uris;
use crate::policy::pins::{Definition, DefinitionKind};

pub use self::search::{SkillQuery, SkillScore};

/// Most files of one server whose digests are stored: 32 skills of the largest size that hosts must support.
const FILES_MAX: usize = 32 * 512;
/// Most skills of one server that are stored.
const SKILLS_MAX: usize = 1024;
/// Most bytes of one entry: 512 files with long URIs, and their frontmatter.
const ENTRY_BYTES_MAX: usize = 256 << 10;
/// Most bytes of the stored entries of one server.
const BYTES_MAX: usize = 4 << 20;
/// What a skill's URI ends with.
pub(crate) const SKILL_FILE: &str = "/SKILL.md";

/// The digest and size of a file, as its server declared them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileRecord {
    digest: Box<str>,
    size: u64,
}

/// The newest entries of skills, by server and own URI. Their digests are what files are verified against.
#[derive(Debug, Default)]
pub struct Skills(HashMap<ServerId, Arc<ServerSkills>>);

/// Those of one server. A server that never listed any has none.
#[derive(Clone, Debug, Default)]
pub struct ServerSkills {
    entries: BTreeMap<Arc<str>, Skill>,
    /// Those of its last list, in its order.
    listed: Vec<Arc<str>>,
    bytes: usize,
    files: usize,
}

/// An entry as its server sent it.
#[derive(Clone, Debug)]
struct Skill {
    text: Arc<str>,
    /// By own URI; `None` for a dynamic skill, which has no digests.
    files: Option<Arc<HashMap<Box<str>, FileRecord>>>,
}

/// A valid entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSkill {
    /// The server's own URI of its SKILL.md.
    pub uri: Arc<str>,
    /// The entry as its server sent it.
    pub text: Arc<str>,
    /// It lies in another skill's directory.
    pub is_nested: bool,
}

impl From<StoredSkill> for Definition {
    fn from(skill: StoredSkill) -> Self {
        Self {
            own_name: skill.uri,
            text: skill.text,
            kind: match skill.is_nested {
                true => DefinitionKind::NestedSkill,
                false => DefinitionKind::Skill,
            },
        }
    }
}

/// Why an entry is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSkill {
    /// It violates the specification: hosts must not load it.
    #[error(
        "an entry of a skill has a URI that ends in {SKILL_FILE}, and files with digests or \"dynamic\""
    )]
    Invalid,
    /// A bound is reached.
    #[error("the server has more skills than the kernel stores, or its entry is too long")]
    TooMany,
}

impl Skill {
    fn parse(entry: &str) -> Option<(Arc<str>, Self)> {
        let all = members(entry)?;
        // Readers differ in which of several members of one name they use.
        let only = |name: &str| {
            let mut named = all.iter().filter(|(it, _)| it == name);
            let (_, value) = named.next().filter(|_| named.next().is_none())?;
            Some(value.get())
        };
        let uri = only("uri").and_then(unquote)?;
        let resources = only("resources")?;
        let files = match elements(resources) {
            Some(files) => {
                let read = files.iter().map(|file| {
                    let file: SkillFile = serde_json::from_str(file.get()).ok()?;
                    let record = FileRecord {
                        digest: file.digest.into(),
                        size: file.size,
                    };
                    Some((file.uri.into(), record))
                });
                Some(Arc::new(read.collect::<Option<HashMap<Box<str>, _>>>()?))
            }
            None if unquote(resources).as_deref() == Some("dynamic") => None,
            None => return None,
        };
        let skill = Self {
            text: entry.into(),
            files,
        };
        uri.ends_with(SKILL_FILE)
            .then(|| (uri.as_ref().into(), skill))
    }

    fn count_files(&self) -> usize {
        self.files.as_ref().map_or(0, |files| files.len())
    }
}

impl ServerSkills {
    /// Replaces the earlier entry of this skill, if there is room for the new one. True if it differs.
    fn replace(&mut self, uri: &Arc<str>, skill: Skill) -> Result<bool, BadSkill> {
        let earlier = self.entries.get(uri);
        if earlier.is_some_and(|earlier| earlier.text == skill.text) {
            return Ok(false);
        }
        let (bytes, files) = earlier.map_or((0, 0), |it| (it.text.len(), it.count_files()));
        let bytes = self.bytes - bytes + skill.text.len();
        let files = self.files - files + skill.count_files();
        let skills = self.entries.len() + usize::from(earlier.is_none());
        if skill.text.len() > ENTRY_BYTES_MAX
            || bytes > BYTES_MAX
            || files > FILES_MAX
            || skills > SKILLS_MAX
        {
            return Err(BadSkill::TooMany);
        }
        (self.bytes, self.files) = (bytes, files);
        self.entries.insert(uri.clone(), skill);
        Ok(true)
    }

    /// The innermost skill whose directory has this file.
    fn innermost(&self, uri: &str) -> Option<(&Arc<str>, &Skill)> {
        if self.entries.is_empty() {
            return None;
        }
        let mut directory = uri;
        loop {
            (directory, _) = directory.rsplit_once('/')?;
            let found = self
                .entries
                .get_key_value(&*format!("{directory}{SKILL_FILE}"));
            if found.is_some() {
                return found;
            }
        }
    }

    fn is_nested(&self, skill: &str) -> bool {
        let root = skill.strip_suffix(SKILL_FILE).unwrap_or(skill);
        self.innermost(root).is_some()
    }

    fn stored(&self, uri: &Arc<str>) -> Option<StoredSkill> {
        Some(StoredSkill {
            uri: uri.clone(),
            text: self.entries.get(uri)?.text.clone(),
            is_nested: self.is_nested(uri),
        })
    }
}

/// A file differs from its skill's entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkillMismatch {
    /// Its size.
    #[error("it has {found} bytes, and its skill's entry says {expected}")]
    Size {
        /// The declared size.
        expected: u64,
        /// The actual size.
        found: u64,
    },
    /// Its content.
    #[error("its content has the digest {found}, and its skill's entry says {expected}")]
    Digest {
        /// The declared digest.
        expected: Box<str>,
        /// The actual digest.
        found: Box<str>,
    },
    /// It is in no entry of its skill.
    #[error("its skill's entry does not list it")]
    Unlisted,
}

#[derive(Deserialize)]
struct SkillFile {
    uri: String,
    digest: String,
    size: u64,
}

impl Skills {
    /// Whether anything of the server was recorded.
    #[must_use]
    pub fn knows(&self, server: &ServerId) -> bool {
        self.0.contains_key(server)
    }

    /// Whether any skill of the server is stored.
    #[must_use]
    pub fn has_any(&self, server: &ServerId) -> bool {
        self.0.get(server).is_some_and(|it| !it.entries.is_empty())
    }

    /// Drops what is stored of servers that do not exist any more.
    pub fn retain(&mut self, exists: impl Fn(&ServerId) -> bool) {
        self.0.retain(|server, _| exists(server));
    }

    /// Stores entries as their server sent them, each in place of its skill's earlier one; with `whole`, they are its list.
    /// The result has one item for each entry; `true` if any is new or differs.
    pub fn record(
        &mut self,
        server: &ServerId,
        entries: &[&str],
        whole: bool,
    ) -> (Vec<Result<Arc<str>, BadSkill>>, bool) {
        let skills = Arc::make_mut(self.0.entry(server.clone()).or_default());
        let mut is_changed = false;
        let mut record = |entry: &&str| {
            let (uri, skill) = Skill::parse(entry).ok_or(BadSkill::Invalid)?;
            is_changed |= skills.replace(&uri, skill)?;
            Ok(uri)
        };
        let recorded: Vec<_> = entries.iter().map(&mut record).collect();
        if whole {
            skills.listed = recorded.iter().flatten().cloned().collect();
        }
        (recorded, is_changed)
    }

    /// All stored skills of a server.
    #[must_use]
    pub fn all(&self, server: &ServerId) -> Vec<StoredSkill> {
        let Some(skills) = self.0.get(server) else {
            return Vec::new();
        };
        let uris = skills.entries.keys();
        uris.filter_map(|uri| skills.stored(uri)).collect()
    }

    /// The skills of its last list.
    #[must_use]
    pub fn listed(&self, server: &ServerId) -> Vec<StoredSkill> {
        let Some(skills) = self.0.get(server) else {
            return Vec::new();
        };
        let uris = skills.listed.iter();
        uris.filter_map(|uri| skills.stored(uri)).collect()
    }

    /// One stored skill.
    #[must_use]
    pub fn find(&self, server: &ServerId, uri: &Arc<str>) -> Option<StoredSkill> {
        self.0.get(server)?.stored(uri)
    }

    /// The innermost skill that a file belongs to, by the own URIs of its server: that of a nested skill, not the enclosing
    /// one.
    #[must_use]
    pub fn find_skill(&self, server: &ServerId, file: &str) -> Option<Arc<str>> {
        let (uri, _) = self.0.get(server)?.innermost(file)?;
        Some(uri.clone())
    }

    /// The entries of a server as they are now.
    #[must_use]
    pub fn server(&self, server: &ServerId) -> Option<Arc<ServerSkills>> {
        self.0.get(server).cloned()
    }
}

impl ServerSkills {
    /// Verifies the contents in a `resources/read` result for `requested`, the server's own URI. Files of no stored skill
    /// and of dynamic ones pass. What a server calls the contents does not take them out of it.
    ///
    /// # Errors
    /// The first difference, with the own URI of its file.
    pub fn verify(&self, requested: &str, result: &str) -> Result<(), (String, SkillMismatch)> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let is_listed = |uri: &str| {
            let skill = self.innermost(uri).and_then(|(_, it)| it.files.as_ref());
            skill.is_some_and(|files| files.contains_key(uri))
        };
        let contents = member(result, "contents").and_then(elements);
        for content in contents.unwrap_or_default() {
            let text = |name| member(content.get(), name).and_then(unquote);
            let uri = text("uri").filter(|uri| is_listed(uri));
            let uri = uri.unwrap_or(requested.into());
            let skill = self.innermost(&uri).and_then(|(_, it)| it.files.as_ref());
            let Some(files) = skill else {
                continue;
            };
            let Some(expected) = files.get(&*uri) else {
                return Err((uri.into_owned(), SkillMismatch::Unlisted));
            };
            let bytes = match (text("text"), text("blob")) {
                (Some(text), _) => text.into_owned().into_bytes(),
                (None, Some(blob)) => BASE64_STANDARD.decode(&*blob).unwrap_or_default(),
                (None, None) => Vec::new(),
            };
            expected
                .verify(&bytes)
                .map_err(|mismatch| (uri.into_owned(), mismatch))?;
        }
        Ok(())
    }
}

/// True for a URI that a server may take for another one: with segments `.` or `..`, plain or encoded.
#[must_use]
pub fn has_dot_segments(uri: &str) -> bool {
    let decoded = uris::percent_decode(uri);
    let decoded = decoded.as_deref().unwrap_or(uri);
    decoded
        .split(['/', '\\'])
        .any(|segment| matches!(segment, "." | ".."))
}

impl FileRecord {
    fn verify(&self, bytes: &[u8]) -> Result<(), SkillMismatch> {
        let found = bytes.len() as u64;
        if found != self.size {
            let expected = self.size;
            return Err(SkillMismatch::Size { expected, found });
        }
        let found = render_digest(bytes);
        if found != self.digest {
            let expected = self.digest.clone();
            return Err(SkillMismatch::Digest { expected, found });
        }
        Ok(())
    }
}

/// The digest of a file as entries have it.
#[must_use]
pub fn render_digest(bytes: &[u8]) -> Box<str> {
    let hex = digest(&SHA256, bytes);
    let hex = hex.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", hex.collect::<String>()).into()
}

/// The URI of a skill as visible in a merged view.
#[must_use]
pub fn wrap_uri(server: &ServerId, uri: &str) -> String {
    uris::wrap_skill(server, uri)
}

/// The entries of a list of skills, or the resources of a directory, or one entry, with their URIs as visible in a merged
/// view; all else stays.
#[must_use]
pub fn wrap_uris(items: &[&str], server: &ServerId) -> Vec<String> {
    let wrap = |item: &&str| {
        let mut splice = Splice::new(item);
        let files = member(item, "resources").and_then(elements);
        let files = files.unwrap_or_default();
        let files = files.iter().map(|file| file.get());
        for part in files.chain([*item]) {
            if let Some(json) = member(part, "uri")
                && let Some(uri) = unquote(json)
            {
                splice.replace(json, quote(&uris::wrap_skill(server, &uri)));
            }
        }
        splice.finish().into_owned()
    };
    items.iter().map(wrap).collect()
}

#[cfg(test)]
mod tests;
