//! The turns of a prompt: texts, or content blocks (MCPL-144, A-14).

use mgp_json::lookalike;
use serde::Deserialize;
use serde_json::Value;

/// The most turns in one request: more than any model's context window holds.
const TURNS_MAX: usize = 1024;
/// The most blocks in one turn.
const PARTS_MAX: usize = 256;

/// One turn of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTurn {
    /// Its role.
    pub role: PromptRole,
    /// Its content; at least one part.
    pub parts: Vec<PromptPart>,
}

/// The role of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptRole {
    /// Instructions for the model.
    System,
    /// The user's input.
    User,
    /// The model's output.
    Assistant,
}

/// A part of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPart {
    /// A text.
    Text(String),
    /// An image within the message.
    Image {
        /// Its bytes, in base64.
        data: String,
        /// Its media type, as `image/png`.
        mime_type: String,
    },
    /// Another block that an agent may support: its type.
    Other(String),
}

#[derive(Deserialize)]
struct WireTurn {
    role: PromptRole,
    content: Value,
}

pub(super) fn parse_turns(messages: &str) -> Result<Vec<PromptTurn>, String> {
    let turns: Vec<WireTurn> =
        lookalike::from_str(messages).map_err(|e| format!("`messages`: {e}"))?;
    match turns.len() {
        0 => return Err("`messages` is empty".to_owned()),
        1..=TURNS_MAX => {}
        many => return Err(format!("{many} messages; at most {TURNS_MAX} are taken")),
    }
    let read = turns.into_iter().enumerate().map(|(at, turn)| {
        let parts =
            parse_parts(turn.content).map_err(|why| format!("`messages[{at}].content`: {why}"))?;
        let role = turn.role;
        Ok(PromptTurn { role, parts })
    });
    read.collect()
}

/// Parses content: a text is one block, and a single block needs no array.
fn parse_parts(content: Value) -> Result<Vec<PromptPart>, String> {
    let blocks = match content {
        Value::String(text) => return Ok(vec![PromptPart::Text(text)]),
        Value::Array(blocks) => blocks,
        block @ Value::Object(_) => vec![block],
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            return Err("it is a text or content blocks".to_owned());
        }
    };
    match blocks.len() {
        0 => Err("it holds no block".to_owned()),
        1..=PARTS_MAX => blocks.iter().map(parse_part).collect(),
        many => Err(format!("{many} blocks; at most {PARTS_MAX} are taken")),
    }
}

fn parse_part(block: &Value) -> Result<PromptPart, String> {
    let text = |member: &str| block.get(member).and_then(Value::as_str).map(str::to_owned);
    let kind = text("type").ok_or("a block says its `type`")?;
    if kind == "text" {
        let text = text("text").map(PromptPart::Text);
        return text.ok_or_else(|| "a text block has a `text`".to_owned());
    }
    if kind != "image" {
        return Ok(PromptPart::Other(kind));
    }
    match (text("data"), text("mimeType"), block.get("uri")) {
        (Some(data), Some(mime_type), None) => Ok(PromptPart::Image { data, mime_type }),
        (None, None, Some(Value::String(_))) => Ok(PromptPart::Other(kind)),
        _ => Err("an image has `data` and `mimeType`, or a `uri`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> PromptPart {
        PromptPart::Text(text.to_owned())
    }

    /// MCPL-144: a text, one block, and several blocks are valid content.
    #[test]
    fn content_may_be_a_text_or_blocks() {
        let turns = parse_turns(
            r#"[{"role":"system","content":"be brief"},
                {"role":"user","content":{"type":"text","text":"a"},"name":"x"},
                {"role":"assistant","content":[{"type":"text","text":"b"},{"type":"image","data":"QQ==","mimeType":"image/png"}]},
                {"role":"user","content":[{"type":"resource","uri":"memory://1"},{"type":"image","uri":"https://a/b.png"}]}]"#,
        )
        .unwrap();
        let roles: Vec<_> = turns.iter().map(|turn| turn.role).collect();
        use PromptRole::{Assistant, System, User};
        assert_eq!(roles, [System, User, Assistant, User]);
        assert_eq!(turns[0].parts, [text("be brief")]);
        assert_eq!(turns[1].parts, [text("a")]);
        assert_eq!(turns[2].parts.len(), 2);
        let other = |kind: &str| PromptPart::Other(kind.to_owned());
        assert_eq!(turns[3].parts, [other("resource"), other("image")]);
    }

    #[test]
    fn invalid_turn_is_reported_with_its_position() {
        let many = vec![r#"{"role":"user","content":"a"}"#; TURNS_MAX + 1].join(",");
        for (bad, word) in [
            ("[]", "empty"),
            ("{}", "messages"),
            (r#"[{"role":"tool","content":"a"}]"#, "messages"),
            (r#"[{"role":"user"}]"#, "content"),
            (r#"[{"role":"user","content":7}]"#, "messages[0].content"),
            (r#"[{"role":"user","content":[]}]"#, "no block"),
            (r#"[{"role":"user","content":[{"text":"a"}]}]"#, "type"),
            (r#"[{"role":"user","content":[{"type":"text"}]}]"#, "`text`"),
            (
                r#"[{"role":"user","content":[{"type":"image","data":"a","uri":"b"}]}]"#,
                "uri",
            ),
            (&format!("[{many}]"), "at most"),
        ] {
            let why = parse_turns(bad).unwrap_err();
            assert!(why.contains(word), "{bad:.60}: {why}");
        }
    }
}
