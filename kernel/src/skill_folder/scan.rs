//! Finds the skills of a folder, with the digests of their files.
//!
//! Links are not followed: a skill that contains one is left out, as is one beyond the limits of the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mgp_engine::tools::skills::render_digest;
use serde_json::{Map, Value, json};

/// Most files of a skill (SEP-2640, limits).
const FILES_MAX: usize = 512;
/// Most bytes of a skill (SEP-2640, limits).
const BYTES_MAX: u64 = 16 << 20;
/// Most files and folders that are looked at.
const ENTRIES_MAX: usize = 16_384;
/// Deepest folder that is looked at.
const DEPTH_MAX: usize = 16;
/// Longest name of a skill (Agent Skills specification).
const NAME_MAX: usize = 64;

/// The file that makes a folder a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";

/// The skills of a folder at one moment.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FolderSkills {
    /// By URI.
    pub(super) skills: BTreeMap<String, LocalSkill>,
    /// Why folders with a SKILL.md are left out.
    pub(super) left_out: Vec<String>,
}

/// A skill with its files.
#[derive(Debug, PartialEq)]
pub(super) struct LocalSkill {
    pub(super) frontmatter: Map<String, Value>,
    /// By URI.
    pub(super) files: BTreeMap<String, LocalFile>,
}

/// A file, as it was when it was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LocalFile {
    pub(super) path: PathBuf,
    pub(super) digest: String,
    pub(super) size: u64,
}

impl LocalFile {
    /// Its content, if that did not change since it was found.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let content = read_bounded(&self.path, self.size)?;
        if content.len() as u64 == self.size && *render_digest(&content) == *self.digest {
            return Ok(content);
        }
        Err(io::Error::other(
            "the file has just changed; read its skill's entry again",
        ))
    }
}

impl LocalSkill {
    /// Its entry.
    pub(super) fn to_entry(&self, uri: &str) -> Value {
        let files = self.files.iter();
        let files =
            files.map(|(uri, it)| json!({"uri": uri, "digest": it.digest, "size": it.size}));
        json!({"uri": uri, "frontmatter": self.frontmatter, "resources": files.collect::<Vec<_>>()})
    }
}

/// A folder on the way.
#[derive(Debug, Default)]
struct Folder {
    files: Vec<String>,
    folders: BTreeMap<String, Folder>,
    /// Why no skill can contain this folder.
    obstacle: Option<String>,
}

impl FolderSkills {
    /// Finds the skills of a canonical folder: of each folder in it with a SKILL.md, or of itself.
    pub(super) fn scan(root: &Path) -> io::Result<Self> {
        let tree = Folder::read(root, 0, &mut 0)?;
        let mut found = Self::default();
        let own_name = root.file_name().and_then(|name| name.to_str());
        match own_name.filter(|_| tree.files.iter().any(|file| file == SKILL_FILE)) {
            Some(name) => found.add_skills(&tree, root, &encode(name)),
            None => {
                for (name, folder) in &tree.folders {
                    found.add_skills(folder, &root.join(name), &encode(name));
                }
            }
        }
        Ok(found)
    }

    fn add_skills(&mut self, folder: &Folder, at: &Path, path: &str) {
        if folder.files.iter().any(|file| file == SKILL_FILE) {
            match LocalSkill::read(folder, at, path) {
                Ok(skill) => {
                    self.skills
                        .insert(format!("skill://{path}/{SKILL_FILE}"), skill);
                }
                Err(why) => self.left_out.push(format!("{}: {why}", at.display())),
            }
        }
        for (name, inner) in &folder.folders {
            let path = format!("{path}/{}", encode(name));
            self.add_skills(inner, &at.join(name), &path);
        }
    }

    /// The file of this URI. No path is made of a URI: only what was found can be read.
    pub(super) fn file(&self, uri: &str) -> Option<&LocalFile> {
        self.skills.values().find_map(|skill| skill.files.get(uri))
    }

    /// The names of a directory's children, `true` for a directory; `None` if there is no such directory.
    pub(super) fn children(&self, directory: &str) -> Option<BTreeSet<(String, bool)>> {
        let within = format!("{directory}/");
        let files = self.skills.values().flat_map(|skill| skill.files.keys());
        let below = files.filter_map(|uri| uri.strip_prefix(&within));
        let children = below.map(|rest| match rest.split_once('/') {
            Some((folder, _)) => (folder.to_owned(), true),
            None => (rest.to_owned(), false),
        });
        let children: BTreeSet<_> = children.collect();
        (!children.is_empty()).then_some(children)
    }
}

impl Folder {
    fn read(at: &Path, depth: usize, entries: &mut usize) -> io::Result<Self> {
        let mut folder = Self::default();
        for entry in fs::read_dir(at)? {
            let entry = entry?;
            *entries += 1;
            let kind = entry.file_type()?;
            let name = entry.file_name();
            // Files of editors and of version control are no part of a skill.
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let obstacle = match name.into_string() {
                Err(name) => format!("the name {name:?} is no UTF-8"),
                Ok(_) if *entries > ENTRIES_MAX => {
                    format!("there are more than {ENTRIES_MAX} files")
                }
                Ok(_) if depth >= DEPTH_MAX => format!("it is deeper than {DEPTH_MAX} folders"),
                Ok(name) if kind.is_file() => {
                    folder.files.push(name);
                    continue;
                }
                Ok(name) if kind.is_dir() => {
                    let inner = Self::read(&at.join(&name), depth + 1, entries)?;
                    folder.folders.insert(name, inner);
                    continue;
                }
                Ok(name) => format!("{name} is a link or no regular file"),
            };
            folder.obstacle.get_or_insert(obstacle);
            if *entries > ENTRIES_MAX {
                break;
            }
        }
        folder.files.sort_unstable();
        Ok(folder)
    }

    /// All files below, with their paths as URIs have them.
    fn collect(
        &self,
        at: &Path,
        path: &str,
        files: &mut Vec<(String, PathBuf)>,
    ) -> Result<(), String> {
        if let Some(obstacle) = &self.obstacle {
            return Err(obstacle.clone());
        }
        let own = self.files.iter();
        files.extend(own.map(|name| (format!("{path}/{}", encode(name)), at.join(name))));
        let mut folders = self.folders.iter();
        folders.try_for_each(|(name, folder)| {
            folder.collect(&at.join(name), &format!("{path}/{}", encode(name)), files)
        })
    }
}

impl LocalSkill {
    fn read(folder: &Folder, at: &Path, path: &str) -> Result<Self, String> {
        let mut found = Vec::new();
        folder.collect(at, path, &mut found)?;
        if found.len() > FILES_MAX {
            return Err(format!(
                "it has {} files; hosts need not load more than {FILES_MAX}",
                found.len()
            ));
        }
        let (mut files, mut left) = (BTreeMap::new(), BYTES_MAX);
        for (path, at) in found {
            let content = read_bounded(&at, left).map_err(|e| format!("{}: {e}", at.display()))?;
            let size = content.len() as u64;
            left = left
                .checked_sub(size)
                .ok_or_else(|| format!("its files have more than {} MiB", BYTES_MAX >> 20))?;
            let file = LocalFile {
                path: at,
                digest: render_digest(&content).into(),
                size,
            };
            files.insert(format!("skill://{path}"), file);
        }
        let text = read_bounded(&at.join(SKILL_FILE), BYTES_MAX).map_err(|e| e.to_string())?;
        let text = String::from_utf8(text).map_err(|_| "SKILL.md is no UTF-8")?;
        let frontmatter = parse_frontmatter(&text)?;
        let name = frontmatter["name"].as_str().unwrap_or_default();
        if at.file_name().and_then(|it| it.to_str()) != Some(name) {
            return Err(format!(
                "its name is {name:?}, and that of its folder is another"
            ));
        }
        Ok(Self { frontmatter, files })
    }
}

/// The content of a file, at most one byte more than `most`.
fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// The YAML at the start of a SKILL.md, with the fields that it must have.
fn parse_frontmatter(text: &str) -> Result<Map<String, Value>, String> {
    let text = text.replace("\r\n", "\n");
    let rest = text
        .strip_prefix("---\n")
        .ok_or("SKILL.md does not start with `---`")?;
    let (yaml, _) = rest
        .split_once("\n---")
        .ok_or("its frontmatter has no end")?;
    let parsed: Value = serde_saphyr::from_str(yaml)
        .map_err(|error| format!("frontmatter: {}", error.without_snippet()))?;
    let Value::Object(fields) = parsed else {
        return Err("its frontmatter has no fields".into());
    };
    let field = |name| fields.get(name).and_then(Value::as_str);
    let name = field("name").ok_or("its frontmatter has no name")?;
    if !is_skill_name(name) {
        return Err(format!(
            "{name:?} is no name of a skill: lower-case letters, digits and single hyphens, at most {NAME_MAX}"
        ));
    }
    field("description")
        .filter(|it| !it.is_empty())
        .ok_or("its frontmatter has no description")?;
    Ok(fields)
}

fn is_skill_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=NAME_MAX).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// A name as a segment of a URI.
fn encode(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(at: &Path, text: impl AsRef<[u8]>) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }

    fn skill(name: &str) -> String {
        format!(
            "---\nname: {name}\ndescription: Does things\nmetadata:\n  version: \"1\"\n---\nText\n"
        )
    }

    /// EXT-050, EXT-051: folders with a SKILL.md are skills with all their files, nested ones as well; a skill with a link, too
    /// much in it or a wrong name is left out, with the reason; nothing outside of the folder can be read.
    #[test]
    fn skills_of_a_folder_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("skills");
        write(&root.join("a/SKILL.md"), skill("a"));
        write(&root.join("a/references/x y.md"), "x");
        write(&root.join("a/.git/config"), "hidden");
        write(&root.join("a/b/SKILL.md"), skill("b"));
        write(&root.join("team/c/SKILL.md"), skill("c"));
        write(&root.join("other/SKILL.md"), skill("wrong"));
        write(&root.join("broken/SKILL.md"), "no frontmatter");
        write(&root.join("linked/SKILL.md"), skill("linked"));
        write(&folder.path().join("secret"), "secret");
        symlink(folder.path().join("secret"), root.join("linked/secret")).unwrap();
        symlink(folder.path(), root.join("outside")).unwrap();
        write(&root.join("large/SKILL.md"), skill("large"));
        write(&root.join("large/data"), vec![0; (16 << 20) + 1]);
        write(&root.join("many/SKILL.md"), skill("many"));
        (0..FILES_MAX).for_each(|n| write(&root.join(format!("many/{n}")), ""));
        let found = FolderSkills::scan(&root).unwrap();
        let uris: Vec<&str> = found.skills.keys().map(String::as_str).collect();
        let expected = [
            "skill://a/SKILL.md",
            "skill://a/b/SKILL.md",
            "skill://team/c/SKILL.md",
        ];
        assert_eq!(uris, expected);
        let files: Vec<&str> = found.skills[expected[0]]
            .files
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            files,
            [
                "skill://a/SKILL.md",
                "skill://a/b/SKILL.md",
                "skill://a/references/x%20y.md"
            ]
        );
        assert_eq!(
            found.skills[expected[0]].frontmatter["metadata"],
            json!({"version": "1"})
        );
        assert_eq!(found.left_out.len(), 5, "{:?}", found.left_out);
        for uri in [
            "skill://a/../../secret",
            "skill://linked/secret",
            "skill://outside/secret",
            "/etc/passwd",
        ] {
            assert_eq!(found.file(uri), None, "{uri}");
        }
        let children = found.children("skill://a").unwrap();
        let names: Vec<&str> = children.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["SKILL.md", "b", "references"]);
        assert_eq!(found.children("skill://a/SKILL.md"), None);
        // What changed since, also by becoming a link, is not read.
        let file = found.file("skill://a/references/x%20y.md").unwrap().clone();
        assert_eq!(file.read().unwrap(), b"x");
        write(&file.path, "y");
        assert!(file.read().is_err());
        fs::remove_file(&file.path).unwrap();
        write(&folder.path().join("same"), "x");
        symlink(folder.path().join("same"), &file.path).unwrap();
        assert!(file.read().is_err());
        // A folder that is a skill itself.
        let own = FolderSkills::scan(&root.join("a/b")).unwrap();
        assert_eq!(
            own.skills.keys().collect::<Vec<_>>(),
            ["skill://b/SKILL.md"]
        );
    }
}
