//! Skills over MCP (SEP-2640): entries as visible in a merged view, and the digests that files are verified against.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mgp_json::{Splice, elements, member, quote, unquote};
use mgp_protocol::ids::ServerId;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::uris;

/// Most files of one server whose digests are stored: 32 skills of the largest size that hosts must support. Beyond them
/// the server's digests are dropped, and stored again from later entries.
const FILES_MAX: usize = 32 * 512;

/// The digest and size of a file, as its server declared them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileRecord {
    digest: Box<str>,
    size: u64,
}

/// The digests of skill files, by server and own URI, from the newest entries that were relayed.
#[derive(Debug, Default)]
pub struct SkillDigests(HashMap<ServerId, ServerSkills>);

#[derive(Debug, Default)]
struct ServerSkills {
    files: HashMap<Box<str>, FileRecord>,
    /// The files of each skill, by the URI of its entry.
    by_skill: HashMap<Box<str>, Vec<Box<str>>>,
}

impl ServerSkills {
    /// Replaces what an earlier entry of this skill said.
    fn replace(&mut self, skill: &str, files: Vec<(Box<str>, FileRecord)>) {
        for file in self.by_skill.remove(skill).unwrap_or_default() {
            self.files.remove(&file);
        }
        if self.files.len() + files.len() > FILES_MAX {
            *self = Self::default();
        }
        if files.is_empty() {
            return;
        }
        let names = files.iter().map(|(file, _)| file.clone()).collect();
        self.by_skill.insert(skill.into(), names);
        self.files.extend(files.into_iter().take(FILES_MAX));
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
}

#[derive(Deserialize)]
struct SkillFile {
    uri: String,
    digest: String,
    size: u64,
}

impl SkillDigests {
    /// True if no digest is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stores the digests of an entry, as its server sent it, in place of those of its skill's earlier entry. A dynamic
    /// skill has none.
    pub fn record(&mut self, server: &ServerId, entry: &str) {
        let Some(skill) = member(entry, "uri").and_then(unquote) else {
            return;
        };
        let files = member(entry, "resources").and_then(elements);
        let files = files.unwrap_or_default().into_iter();
        let files = files.filter_map(|file| serde_json::from_str::<SkillFile>(file.get()).ok());
        let files = files.map(|file| {
            let record = FileRecord {
                digest: file.digest.into(),
                size: file.size,
            };
            (file.uri.into(), record)
        });
        let files: Vec<_> = files.collect();
        if !files.is_empty() || self.0.contains_key(server) {
            self.0
                .entry(server.clone())
                .or_default()
                .replace(&skill, files);
        }
    }

    /// Verifies the contents in a `resources/read` result for `requested`, the server's own URI; files without a stored
    /// digest pass. What a server calls the contents does not take them out of it.
    ///
    /// # Errors
    /// The first difference, with the own URI of its file.
    pub fn verify(
        &self,
        server: &ServerId,
        requested: &str,
        result: &str,
    ) -> Result<(), (String, SkillMismatch)> {
        let Some(ServerSkills { files: known, .. }) = self.0.get(server) else {
            return Ok(());
        };
        let contents = member(result, "contents").and_then(elements);
        for content in contents.unwrap_or_default() {
            let text = |name| member(content.get(), name).and_then(unquote);
            let uri = text("uri").filter(|uri| known.contains_key(&**uri));
            let uri = uri.unwrap_or(requested.into());
            let Some(expected) = known.get(&*uri) else {
                continue;
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

fn render_digest(bytes: &[u8]) -> Box<str> {
    let hex = digest(&SHA256, bytes);
    let hex = hex.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", hex.collect::<String>()).into()
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
mod tests {
    use super::*;
    use serde_json::json;

    const FILE: &str = "skill://a/SKILL.md";

    fn entry(text: &str) -> String {
        let file = json!({"uri": "skill://a/SKILL.md", "digest": render_digest(text.as_bytes()), "size": text.len()});
        json!({"uri": "skill://a/SKILL.md", "frontmatter": {"name": "a"}, "resources": [file]})
            .to_string()
    }

    fn read(text: &str) -> String {
        json!({"contents": [{"uri": "skill://a/SKILL.md", "text": text}]}).to_string()
    }

    /// EXT-044: a file that differs from the newest entry is rejected, by size or by digest; as text or as a blob.
    #[test]
    fn changed_files_are_rejected() {
        let (server, mut digests) = (ServerId::new("s"), SkillDigests::default());
        assert_eq!(digests.verify(&server, FILE, &read("x")), Ok(()));
        digests.record(&server, &entry("h\u{e9}llo"));
        assert_eq!(digests.verify(&server, FILE, &read("h\u{e9}llo")), Ok(()));
        let blob = json!({"contents": [{"uri": "skill://a/SKILL.md", "blob": BASE64_STANDARD.encode("h\u{e9}llo")}]});
        assert_eq!(digests.verify(&server, FILE, &blob.to_string()), Ok(()));
        for (text, is_size) in [("h\u{e9}lla", false), ("hello", true), ("", true)] {
            let (uri, mismatch) = digests.verify(&server, FILE, &read(text)).unwrap_err();
            assert_eq!(uri, "skill://a/SKILL.md");
            assert_eq!(matches!(mismatch, SkillMismatch::Size { .. }), is_size);
        }
        assert_eq!(
            digests.verify(&ServerId::new("t"), FILE, &read("other")),
            Ok(())
        );
        digests.record(
            &server,
            r#"{"uri":"skill://d/SKILL.md","resources":"dynamic"}"#,
        );
        digests.record(&server, &entry("new"));
        assert_eq!(digests.verify(&server, FILE, &read("new")), Ok(()));
        // It stays refused, and under another name as well.
        let renamed = json!({"contents": [{"uri": "skill://b", "text": "any"}, {"text": "new"}]});
        for _ in 0..2 {
            assert!(digests.verify(&server, FILE, &read("any")).is_err());
            assert!(digests.verify(&server, FILE, &renamed.to_string()).is_err());
        }
        // The newest entry of the skill counts, also where it has no digests any more.
        digests.record(
            &server,
            r#"{"uri":"skill://a/SKILL.md","resources":"dynamic"}"#,
        );
        assert_eq!(digests.verify(&server, FILE, &read("any")), Ok(()));
    }

    #[test]
    fn digests_are_bounded() {
        let (server, mut digests) = (ServerId::new("s"), SkillDigests::default());
        let file =
            |n: usize| json!({"uri": format!("skill://a/{n}"), "digest": "sha256:0", "size": 1});
        for chunk in 0..40 {
            let files: Vec<_> = (0..512).map(|n| file(chunk * 512 + n)).collect();
            let entry = json!({"uri": format!("skill://{chunk}"), "resources": files});
            digests.record(&server, &entry.to_string());
        }
        assert!(digests.0[&server].files.len() <= FILES_MAX);
    }

    /// EXT-041: entries name the files as the merged view shows them; the rest stays to the byte.
    #[test]
    fn uris_of_entries_are_wrapped() {
        let server = ServerId::new("docs");
        let entry = r#"{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a","n":1.0,"uri":"skill://x"},"resources":[{"uri":"skill://a/SKILL.md","digest":"d","size":1},{"uri":"github://o/r/b.md","digest":"e","size":2}]}"#;
        let wrapped = r#"{"uri":"skill://docs/a/SKILL.md","frontmatter":{"name":"a","n":1.0,"uri":"skill://x"},"resources":[{"uri":"skill://docs/a/SKILL.md","digest":"d","size":1},{"uri":"mcpk://docs/github://o/r/b.md","digest":"e","size":2}]}"#;
        assert_eq!(wrap_uris(&[entry], &server), [wrapped]);
        let dynamic = r#"{"uri":"skill://d/SKILL.md","resources":"dynamic"}"#;
        let wrapped = r#"{"uri":"skill://docs/d/SKILL.md","resources":"dynamic"}"#;
        assert_eq!(wrap_uris(&[dynamic], &server), [wrapped]);
    }
}
