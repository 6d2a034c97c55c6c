//! Converts content blocks for versions that lack some kinds, without losing data.

use mgp_json::{quote, unquote};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::object::{Member, join_array, join_members, join_object, last_value, split_members};
use crate::dialect::Version;

/// True if the version has all kinds of blocks.
pub(super) fn has_all_blocks(version: Version) -> bool {
    version >= Version::V2025_06_18
}

/// Converts blocks, or messages with blocks, for this version; `None` if no change is needed.
pub(super) fn to_version(blocks: &str, to: Version) -> Option<String> {
    if has_all_blocks(to) {
        return None;
    }
    let all = parse_elements(blocks)?;
    let converted: Vec<Option<String>> = all
        .iter()
        .enumerate()
        .map(|(at, one)| convert_message(one, at, to).or_else(|| convert_block(one, at, to)))
        .collect();
    if converted.iter().all(Option::is_none) {
        return None;
    }
    let texts = all.iter().zip(&converted);
    Some(join_array(
        texts.map(|(old, new)| new.as_deref().unwrap_or(old)),
    ))
}

/// The elements of an array; `None` if it is no array.
pub(super) fn parse_elements(json: &str) -> Option<Vec<&str>> {
    #[derive(Deserialize)]
    struct Elements<'a>(#[serde(borrow)] Vec<&'a RawValue>);
    let Elements(all) = serde_json::from_str(json).ok()?;
    Some(all.into_iter().map(RawValue::get).collect())
}

/// Converts a prompt's message: its `content` is one block.
fn convert_message(json: &str, at: usize, to: Version) -> Option<String> {
    let mut all = split_members(json)?;
    let content = all.iter_mut().find(|part| part.name == "content")?;
    let converted = convert_block(content.value, at, to)?;
    content.replace(&converted);
    Some(join_members(&all))
}

/// Converts one block; `None` if the version has its kind.
fn convert_block(json: &str, at: usize, to: Version) -> Option<String> {
    let all = split_members(json)?;
    let kind = unquote(last_value(&all, "type")?)?;
    if kind == "audio" && to < Version::V2025_03_26 {
        audio_as_resource(&all, at)
    } else if kind == "resource_link" {
        link_as_text(&all)
    } else {
        None
    }
}

/// Converts audio to an embedded resource with the same bytes and type.
fn audio_as_resource(audio: &[Member<'_>], at: usize) -> Option<String> {
    let kind = last_value(audio, "mimeType").unwrap_or(r#""audio/*""#);
    let data = last_value(audio, "data")?;
    // A resource needs a URI; this one is unique within the result.
    let resource = format!(r#"{{"uri":"mgp:audio/{at}","mimeType":{kind},"blob":{data}}}"#);
    let new = format!(r#""type":"resource","resource":{resource}"#);
    Some(replace_members(audio, &["type", "mimeType", "data"], &new))
}

/// Converts a link to a text that names the resource.
fn link_as_text(link: &[Member<'_>]) -> Option<String> {
    let text_of = |name: &str| last_value(link, name).and_then(unquote);
    let name = text_of("title")
        .or_else(|| text_of("name"))
        .unwrap_or_default();
    let uri = text_of("uri")?;
    let kind = text_of("mimeType").map(|kind| format!(" ({kind})"));
    let more = text_of("description").map(|more| format!("\n{more}"));
    let line = format!(
        "{name}{}: {uri}{}",
        kind.unwrap_or_default(),
        more.unwrap_or_default()
    );
    let new = format!(r#""type":"text","text":{}"#, quote(&line));
    let used = [
        "type",
        "name",
        "title",
        "uri",
        "mimeType",
        "description",
        "size",
        "icons",
    ];
    Some(replace_members(link, &used, &new))
}

/// Replaces the `used` members of a block by `new`; annotations and `_meta` stay.
fn replace_members(block: &[Member<'_>], used: &[&str], new: &str) -> String {
    let kept = block.iter().filter(|part| !used.contains(&&*part.name));
    join_object([new].into_iter().chain(kept.map(|part| &*part.text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUDIO: &str =
        r#"{"type":"audio","data":"AA==","mimeType":"audio/wav","annotations":{"priority":1.0}}"#;
    const LINK: &str = r#"{"type":"resource_link","uri":"a://b","name":"n","description":"d"}"#;

    #[test]
    fn blocks_are_converted_for_the_version() {
        let text = r#"{"type":"text","text":"audio" }"#;
        let blocks = format!("[{text}, {AUDIO},{LINK}]");
        let audio = r#"{"type":"resource","resource":{"uri":"mgp:audio/1","mimeType":"audio/wav","blob":"AA=="},"annotations":{"priority":1.0}}"#;
        let link = r#"{"type":"text","text":"n: a://b\nd"}"#;
        assert_eq!(
            to_version(&blocks, Version::V2024_11_05).unwrap(),
            format!("[{text},{audio},{link}]")
        );
        assert_eq!(
            to_version(&blocks, Version::V2025_03_26).unwrap(),
            format!("[{text},{AUDIO},{link}]")
        );
        assert_eq!(to_version(&blocks, Version::V2025_06_18), None);
        assert_eq!(to_version(&format!("[{text}]"), Version::V2024_11_05), None);
    }

    #[test]
    fn blocks_of_messages_are_converted() {
        let messages = format!(r#"[{{"role":"user", "content":{LINK}}}]"#);
        assert_eq!(
            to_version(&messages, Version::V2024_11_05).unwrap(),
            r#"[{"role":"user","content":{"type":"text","text":"n: a://b\nd"}}]"#
        );
    }
}
