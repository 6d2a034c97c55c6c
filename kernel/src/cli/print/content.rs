//! Displays the result of a tool: text, saved files, structured values.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::cli::text_format::{first_line, sanitize_lines};

/// Files of one name in a folder.
const MAX_FILES: usize = 10_000;

/// Where files are saved, and their names.
pub(in crate::cli) struct Saver<'s> {
    pub(in crate::cli) folder: &'s Path,
    /// The tool, as the prefix of file names.
    pub(in crate::cli) tool: &'s str,
}

/// The whole result as text. Images and audio are saved on the way.
pub(in crate::cli) fn render(result: &Value, saver: &Saver<'_>) -> io::Result<String> {
    let mut parts = Vec::new();
    let structured = &result["structuredContent"];
    for block in result["content"].as_array().into_iter().flatten() {
        // For older clients, a structured result is repeated as text, which is skipped here.
        let repeated = || {
            block["text"]
                .as_str()
                .and_then(|t| serde_json::from_str::<Value>(t).ok())
        };
        if structured.is_null() || repeated().as_ref() != Some(structured) {
            parts.push(render_block(block, saver)?);
        }
    }
    if !structured.is_null() {
        parts.push(sanitize_lines(&format!("{structured:#}")));
    }
    Ok(parts.join("\n"))
}

/// One block of content.
pub(in crate::cli) fn render_block(block: &Value, saver: &Saver<'_>) -> io::Result<String> {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    match text("type") {
        "text" => Ok(sanitize_lines(text("text"))),
        "image" | "audio" => saver.save(text("data"), text("mimeType")),
        "resource_link" => {
            let name = block["title"].as_str().unwrap_or(text("name"));
            Ok(format!(
                "{} <{}>",
                first_line(name, 80),
                first_line(text("uri"), 2000)
            ))
        }
        "resource" => render_resource(&block["resource"], saver),
        _ => Ok(sanitize_lines(&format!("{block:#}"))),
    }
}

/// The contents of one resource.
pub(in crate::cli) fn render_resource(resource: &Value, saver: &Saver<'_>) -> io::Result<String> {
    match (resource["text"].as_str(), resource["blob"].as_str()) {
        (Some(text), _) => Ok(sanitize_lines(text)),
        (None, Some(blob)) => saver.save(blob, resource["mimeType"].as_str().unwrap_or_default()),
        (None, None) => Ok(sanitize_lines(&format!("{resource:#}"))),
    }
}

impl Saver<'_> {
    fn save(&self, base64: &str, mime: &str) -> io::Result<String> {
        let Ok(bytes) = STANDARD.decode(base64) else {
            return Ok(format!("({}: not base64, not saved)", first_line(mime, 80)));
        };
        let path = self.write(&bytes, &safe_extension(mime))?;
        Ok(format!(
            "saved {} ({}, {} bytes)",
            path.display(),
            first_line(mime, 80),
            bytes.len()
        ))
    }

    /// Writes to the first free name.
    fn write(&self, bytes: &[u8], extension: &str) -> io::Result<PathBuf> {
        fs::create_dir_all(self.folder)?;
        let letter = |c: char| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        };
        let tool: String = self.tool.chars().map(letter).collect();
        for number in 1..=MAX_FILES {
            let path = self.folder.join(format!("{tool}-{number}.{extension}"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => return file.write_all(bytes).map(|()| path),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io::Error::other(format!("{}: {e}", path.display()))),
            }
        }
        Err(io::Error::other(format!(
            "{} is full of older files",
            self.folder.display()
        )))
    }
}

/// A harmless file extension for the MIME type that a server declares.
fn safe_extension(mime: &str) -> String {
    let subtype = mime.split(['/', ';', '+']).nth(1).unwrap_or_default();
    match subtype {
        "jpeg" => "jpg".into(),
        "mpeg" => "mp3".into(),
        "plain" => "txt".into(),
        "x-wav" => "wav".into(),
        _ => {
            let letters: String = subtype
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .take(8)
                .collect();
            if letters.is_empty() {
                "bin".into()
            } else {
                letters.to_ascii_lowercase()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rendered(result: &Value, folder: &Path) -> String {
        let saver = Saver {
            folder,
            tool: "demo:draw",
        };
        render(result, &saver).unwrap()
    }

    #[test]
    fn a_structured_result_is_shown_once() {
        let here = Path::new(".");
        let twice = json!({"content": [{"type": "text", "text": "{\"a\": 1}"}], "structuredContent": {"a": 1}});
        assert_eq!(rendered(&twice, here), "{\n  \"a\": 1\n}");
        let both =
            json!({"content": [{"type": "text", "text": "one"}], "structuredContent": {"a": 1}});
        assert_eq!(rendered(&both, here), "one\n{\n  \"a\": 1\n}");
    }

    #[test]
    fn pictures_are_saved_under_free_names() {
        let folder = tempfile::tempdir().unwrap();
        let picture = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        let shown = rendered(
            &json!({"content": [picture.clone(), picture]}),
            folder.path(),
        );
        assert!(
            shown.contains("demo-draw-1.png") && shown.contains("demo-draw-2.png"),
            "{shown}"
        );
        assert_eq!(
            fs::read(folder.path().join("demo-draw-2.png")).unwrap(),
            b"hi"
        );
    }

    #[test]
    fn servers_cannot_choose_the_location_of_files() {
        assert_eq!(safe_extension("image/../../x"), "bin");
        assert_eq!(safe_extension("image/svg+xml"), "svg");
        assert_eq!(safe_extension(""), "bin");
    }

    #[test]
    fn links_and_embedded_resources_are_shown() {
        let content = json!({"content": [
            {"type": "resource_link", "name": "n", "uri": "file:///x"},
            {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
            {"type": "from-the-future", "x": 1},
        ]});
        let shown = rendered(&content, Path::new("."));
        assert!(shown.starts_with("n <file:///x>\ninside\n{"), "{shown}");
    }
}
