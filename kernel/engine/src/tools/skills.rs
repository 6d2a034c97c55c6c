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
pub struct SkillDigests(HashMap<ServerId, HashMap<Box<str>, FileRecord>>);

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

    /// Stores the digests of an entry, as its server sent it. A dynamic skill has none.
    pub fn record(&mut self, server: &ServerId, entry: &str) {
        let files = member(entry, "resources").and_then(elements);
        let files = files.unwrap_or_default().into_iter();
        let files = files.filter_map(|file| serde_json::from_str::<SkillFile>(file.get()).ok());
        for file in files {
            let known = self.0.entry(server.clone()).or_default();
            if known.len() >= FILES_MAX {
                known.clear();
            }
            let record = FileRecord {
                digest: file.digest.into(),
                size: file.size,
            };
            known.insert(file.uri.into(), record);
        }
    }

    /// Verifies the contents in a `resources/read` result; files without a stored digest pass.
    ///
    /// # Errors
    /// The first difference, with the own URI of its file.
    pub fn verify(&self, server: &ServerId, result: &str) -> Result<(), (String, SkillMismatch)> {
        let Some(known) = self.0.get(server) else {
            return Ok(());
        };
        let contents = member(result, "contents").and_then(elements);
        for content in contents.unwrap_or_default() {
            let text = |name| member(content.get(), name).and_then(unquote);
            let Some(uri) = text("uri") else { continue };
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

    /// Drops the digests of a file, so that the next entry counts.
    pub fn forget(&mut self, server: &ServerId, uri: &str) {
        if let Some(known) = self.0.get_mut(server) {
            known.remove(uri);
        }
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
        assert_eq!(digests.verify(&server, &read("x")), Ok(()));
        digests.record(&server, &entry("h\u{e9}llo"));
        assert_eq!(digests.verify(&server, &read("h\u{e9}llo")), Ok(()));
        let blob = json!({"contents": [{"uri": "skill://a/SKILL.md", "blob": BASE64_STANDARD.encode("h\u{e9}llo")}]});
        assert_eq!(digests.verify(&server, &blob.to_string()), Ok(()));
        for (text, is_size) in [("h\u{e9}lla", false), ("hello", true), ("", true)] {
            let (uri, mismatch) = digests.verify(&server, &read(text)).unwrap_err();
            assert_eq!(uri, "skill://a/SKILL.md");
            assert_eq!(matches!(mismatch, SkillMismatch::Size { .. }), is_size);
        }
        assert_eq!(digests.verify(&ServerId::new("t"), &read("other")), Ok(()));
        digests.record(
            &server,
            r#"{"uri":"skill://d/SKILL.md","resources":"dynamic"}"#,
        );
        digests.record(&server, &entry("new"));
        assert_eq!(digests.verify(&server, &read("new")), Ok(()));
        digests.forget(&server, "skill://a/SKILL.md");
        assert_eq!(digests.verify(&server, &read("any")), Ok(()));
    }

    #[test]
    fn digests_are_bounded() {
        let (server, mut digests) = (ServerId::new("s"), SkillDigests::default());
        let file =
            |n: usize| json!({"uri": format!("skill://a/{n}"), "digest": "sha256:0", "size": 1});
        for chunk in 0..40 {
            let files: Vec<_> = (0..512).map(|n| file(chunk * 512 + n)).collect();
            digests.record(&server, &json!({"resources": files}).to_string());
        }
        assert!(digests.0[&server].len() <= FILES_MAX);
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
