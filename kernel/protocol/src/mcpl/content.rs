//! Content blocks (MCPL §10.3, appendix B.1). Relayed blocks keep their original text.

use std::borrow::Cow;

use mgp_json::{lookalike, quote};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The types of blocks; the last one is MCP's.
const TEXT: &str = "text";
const IMAGE: &str = "image";
const AUDIO: &str = "audio";
const RESOURCE: &str = "resource";
const RESOURCE_LINK: &str = "resource_link";

/// The most blocks of one content; a person's message has a few.
pub(crate) const BLOCKS_MAX: usize = 1024;

/// The kind of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// `text`, with the text.
    Text(String),
    /// `image`.
    Image,
    /// `audio`.
    Audio,
    /// `resource`, also in MCP's form: with the embedded resource, or as `resource_link` (A-15).
    Resource,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentBlock {
    /// Its kind.
    pub kind: ContentKind,
    json: Box<str>,
}

/// Blocks in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content(pub Vec<ContentBlock>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    mime_type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lookalike::object")]
    resource: Option<&'a RawValue>,
}

impl ContentBlock {
    /// A text block.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self {
            kind: ContentKind::Text(text.to_owned()),
            json: format!(r#"{{"type":"text","text":{}}}"#, quote(text)).into(),
        }
    }

    /// The original JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// # Errors
    /// The problem, as text.
    fn parse(raw: &RawValue) -> Result<Self, String> {
        let block: RawBlock<'_> =
            lookalike::from_str(raw.get()).map_err(|error| lookalike::strip_position(&error))?;
        let kind = match block.kind.as_ref() {
            TEXT => ContentKind::Text(
                block
                    .text
                    .map(Cow::into_owned)
                    .ok_or("a text block has no `text`")?,
            ),
            IMAGE => {
                check_single_source(&block)?;
                ContentKind::Image
            }
            AUDIO => {
                check_single_source(&block)?;
                ContentKind::Audio
            }
            RESOURCE if block.uri.is_some() || block.resource.is_some() => ContentKind::Resource,
            RESOURCE_LINK if block.uri.is_some() => ContentKind::Resource,
            RESOURCE | RESOURCE_LINK => return Err("a resource block has no `uri`".into()),
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(format!("there is no content block of type {other:?}"));
            }
        };
        Ok(Self {
            kind,
            json: raw.get().into(),
        })
    }
}

/// Requires either `data` with its `mimeType`, or a `uri`, but not both (appendix B.1).
fn check_single_source(block: &RawBlock<'_>) -> Result<(), String> {
    let within = block.data.is_some() && block.mime_type.is_some();
    if within != block.uri.is_some() {
        Ok(())
    } else {
        Err(format!(
            "{} content has either `data` and `mimeType` or a `uri`",
            block.kind
        ))
    }
}

impl Content {
    /// Content of one text block.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self(vec![ContentBlock::text(text)])
    }

    /// Parses a list of blocks, or a plain string, which is one text block (A-14, MCPL-090).
    ///
    /// # Errors
    /// The problem of the first invalid block, as text.
    pub fn parse(json: &str) -> Result<Self, String> {
        if json.starts_with('"') {
            let text: Cow<'_, str> = serde_json::from_str(json).map_err(|e| e.to_string())?;
            return Ok(Self::text(&text));
        }
        let blocks: Vec<&RawValue> =
            serde_json::from_str(json).map_err(|_| "content is a list of blocks or a text")?;
        if blocks.len() > BLOCKS_MAX {
            return Err(format!("content has more than {BLOCKS_MAX} blocks"));
        }
        let read = blocks.into_iter().map(ContentBlock::parse);
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// Renders the list of blocks as JSON text; never a plain string (A-14).
    #[must_use]
    pub fn to_json(&self) -> String {
        let blocks: Vec<&str> = self.0.iter().map(ContentBlock::json).collect();
        format!("[{}]", blocks.join(","))
    }

    /// Joins all texts, one per line.
    #[must_use]
    pub fn joined_text(&self) -> String {
        let texts = self.0.iter().filter_map(|block| match &block.kind {
            ContentKind::Text(text) => Some(text.as_str()),
            ContentKind::Image | ContentKind::Audio | ContentKind::Resource => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The bytes of all blocks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.iter().map(|block| block.json.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-137, MCPL-089, A-15: blocks of appendix B.1, and MCP's form of a resource.
    #[test]
    fn valid_blocks_are_accepted_unchanged() {
        for block in [
            r#"{"type":"text","text":"hi","annotations":{}}"#,
            r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#,
            r#"{"type":"image","uri":"file:///a.png"}"#,
            r#"{"type":"image","uri":"file:///a.png","mimeType":"image/png"}"#,
            r#"{"type":"audio","data":"aGk=","mimeType":"audio/wav"}"#,
            r#"{"type":"audio","uri":"https://a.test/a.wav"}"#,
            r#"{"type":"resource","uri":"memo://1"}"#,
            r#"{"type":"resource","resource":{"uri":"memo://1","text":"x"}}"#,
            r#"{"type":"resource_link","uri":"memo://1","name":"x"}"#,
        ] {
            let list = format!("[{block}]");
            assert_eq!(Content::parse(&list).unwrap().to_json(), list);
        }
    }

    /// MCPL-137: both sources or none, no text, or an unknown type.
    #[test]
    fn invalid_blocks_are_rejected() {
        for block in [
            r#"{"type":"text"}"#,
            r#"{"type":"text","text":7}"#,
            r#"{"type":"text","text":"a","text":"b"}"#,
            r#"{"type":"text","text":"a","TEXT":"b"}"#,
            r#"{"type":"image"}"#,
            r#"{"type":"image","data":"aGk="}"#,
            r#"{"type":"image","mimeType":"image/png"}"#,
            r#"{"type":"image","data":"aGk=","mimeType":"image/png","uri":"file:///a"}"#,
            r#"{"type":"audio","data":"aGk=","mimeType":"audio/wav","uri":"x"}"#,
            r#"{"type":"resource"}"#,
            r#"{"type":"resource_link"}"#,
            r#"{"type":"video","uri":"x"}"#,
            r#"{"text":"a"}"#,
            r#"["text","a"]"#,
            "null",
        ] {
            assert!(Content::parse(&format!("[{block}]")).is_err(), "{block}");
        }
        assert!(Content::parse("{}").is_err() && Content::parse("7").is_err());
        let many = vec![r#"{"type":"text","text":""}"#; BLOCKS_MAX + 1].join(",");
        assert!(Content::parse(&format!("[{many}]")).is_err());
    }

    /// MCPL-090, A-14: a plain string is one text, and is rendered as a list.
    #[test]
    fn string_is_one_text_block() {
        let content = Content::parse(r#""a\n\"b\"""#).unwrap();
        assert_eq!(content.to_json(), r#"[{"type":"text","text":"a\n\"b\""}]"#);
        assert_eq!(content.joined_text(), "a\n\"b\"");
        assert_eq!(Content::parse("[]").unwrap(), Content::default());
    }
}
