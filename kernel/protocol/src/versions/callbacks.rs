//! Converts callbacks of a server: requests in the legacy protocol, entries of `inputRequests` in the
//! stateless one. Answers of legacy clients are valid in `inputResponses` unchanged.

use std::borrow::Cow;

use mgp_json::{Splice, lookalike, member, quote, unquote};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::parse_elements;
use super::object::{
    Member, can_mention, join_array, join_members, last_value, split_members, strip_meta,
};
use crate::dialect::Version;
use crate::mcp::meta::{RELATED_CALL, RELATED_TASK};
use crate::mcp::sampling::CreateMessage;
use crate::mcp::{Method as _, elicitation, roots};
use crate::refusal::URL_ELICITATION_REQUIRED;

/// The params of a callback for a legacy client of version `to`; `None` if that version does not support
/// it. `elicitation_id` names a URL elicitation without an id; it should be unique.
#[must_use]
pub fn to_legacy_callback<'a>(
    method: &str,
    params: Option<&'a str>,
    to: Version,
    elicitation_id: &str,
) -> Option<Cow<'a, str>> {
    let params = params.unwrap_or("{}");
    match method {
        elicitation::Create::METHOD => to_legacy_elicitation(params, to, elicitation_id),
        CreateMessage::METHOD => to_legacy_sampling(params, to),
        roots::List::METHOD => Some(Cow::Borrowed(params)),
        _ => None,
    }
}

fn to_legacy_elicitation<'a>(params: &'a str, to: Version, id: &str) -> Option<Cow<'a, str>> {
    let all = split_members(params)?;
    let mode = last_value(&all, "mode").map_or_else(|| Some("form".into()), unquote)?;
    match (&*mode, to) {
        (_, Version::V2024_11_05 | Version::V2025_03_26) => None,
        ("form", Version::V2025_06_18) => to_simple_form(all).map(Cow::Owned),
        ("url", Version::V2025_06_18) => None,
        ("url", Version::V2025_11_25) if last_value(&all, "elicitationId").is_none() => {
            let mut splice = Splice::new(params);
            splice.insert_member(params.trim_start(), "elicitationId", &quote(id));
            Some(splice.finish())
        }
        _ => Some(Cow::Borrowed(params)),
    }
}

/// Converts a form to 2025-06-18: no `mode`, and titles of options in `enumNames`.
fn to_simple_form(mut all: Vec<Member<'_>>) -> Option<String> {
    all.retain(|part| part.name != "mode");
    if let Some(schema) = all.iter_mut().find(|part| part.name == "requestedSchema") {
        let mut keywords = split_members(schema.value)?;
        if let Some(fields) = keywords.iter_mut().find(|part| part.name == "properties") {
            let mut all = split_members(fields.value)?;
            for field in &mut all {
                let old = to_simple_field(field.value)?;
                field.replace(&old);
            }
            fields.replace(&join_members(&all));
        }
        schema.replace(&join_members(&keywords));
    }
    Some(join_members(&all))
}

/// Converts a field to 2025-06-18; `None` for a multiple choice, which that version lacks.
fn to_simple_field(schema: &str) -> Option<Cow<'_, str>> {
    let mut all = split_members(schema)?;
    if last_value(&all, "type") == Some(r#""array""#) {
        return None;
    }
    let Some(choices) = last_value(&all, "oneOf") else {
        return Some(Cow::Borrowed(schema));
    };
    let choices = parse_elements(choices)?;
    let consts: Option<Vec<&str>> = choices.iter().map(|c| member(c, "const")).collect();
    let consts = consts?;
    let titles = choices.iter().zip(&consts);
    let titles: Vec<&str> = titles
        .map(|(choice, value)| member(choice, "title").unwrap_or(value))
        .collect();
    let (names, titles) = (join_array(consts), join_array(titles));
    all.retain(|part| part.name != "oneOf");
    all.push(Member::new("enum", &names));
    all.push(Member::new("enumNames", &titles));
    Some(Cow::Owned(join_members(&all)))
}

/// Converts sampling params: before 2025-11-25 a message has one block and there are no tools; before
/// 2025-03-26 no audio.
fn to_legacy_sampling(params: &str, to: Version) -> Option<Cow<'_, str>> {
    if to >= Version::V2025_11_25 {
        return Some(Cow::Borrowed(params));
    }
    let mut all = split_members(params)?;
    let asks_tools =
        |name| last_value(&all, name).is_some_and(|json| json != "null" && json != "[]");
    if asks_tools("tools") {
        return None;
    }
    let before = all.len();
    all.retain(|part| part.name != "tools" && part.name != "toolChoice");
    let mut changed = all.len() != before;
    if let Some(messages) = all.iter_mut().find(|part| part.name == "messages") {
        let old = parse_elements(messages.value)?;
        let new: Option<Vec<Cow<'_, str>>> = old.iter().map(|m| to_single_block(m, to)).collect();
        let new = new?;
        if new.iter().any(|m| matches!(m, Cow::Owned(_))) {
            messages.replace(&join_array(new.iter().map(|m| &**m)));
            changed = true;
        }
    }
    Some(if changed {
        Cow::Owned(join_members(&all))
    } else {
        Cow::Borrowed(params)
    })
}

/// Converts a message, or a sampling result, to a single `content` block supported by the version.
fn to_single_block(message: &str, to: Version) -> Option<Cow<'_, str>> {
    let mut all = split_members(message)?;
    let Some(content) = all.iter_mut().find(|part| part.name == "content") else {
        return Some(Cow::Borrowed(message));
    };
    let several = parse_elements(content.value);
    let block = match several.as_deref() {
        None => content.value,
        Some([one]) => one,
        Some(_) => return None,
    };
    match &*unquote(member(block, "type")?)? {
        "text" | "image" => {}
        "audio" if to >= Version::V2025_03_26 => {}
        _ => return None,
    }
    if several.is_none() {
        return Some(Cow::Borrowed(message));
    }
    content.replace(block);
    Some(Cow::Owned(join_members(&all)))
}

/// The params of a legacy server's callback for `inputRequests`: without the elicitation's id, the task
/// request and the metadata of the server's own request; all else stays.
#[must_use]
pub fn to_stateless_callback(params: &str) -> Cow<'_, str> {
    if !can_mention(params, &["elicitationId", "task", "progressToken"]) {
        return Cow::Borrowed(params);
    }
    let Some(mut all) = split_members(params) else {
        return Cow::Borrowed(params);
    };
    let before = all.len();
    all.retain(|part| part.name != "elicitationId" && part.name != "task");
    let dropped = all.len() != before;
    if strip_meta(&mut all, &["progressToken", RELATED_TASK]) || dropped {
        return Cow::Owned(join_members(&all));
    }
    Cow::Borrowed(params)
}

/// Removes the id of the related call from a callback's params: it is only between its server and the
/// kernel.
#[must_use]
pub fn strip_related_call(params: &str) -> Cow<'_, str> {
    if !can_mention(params, &[RELATED_CALL]) {
        return Cow::Borrowed(params);
    }
    let Some(mut all) = split_members(params) else {
        return Cow::Borrowed(params);
    };
    if strip_meta(&mut all, &[RELATED_CALL]) {
        Cow::Owned(join_members(&all))
    } else {
        Cow::Borrowed(params)
    }
}

/// A client's answer to a callback, for a legacy server of version `to`: a sampled message in one block if
/// the version requires it. `None` if the version cannot express it.
#[must_use]
pub fn to_legacy_callback_result<'a>(
    method: &str,
    result: &'a str,
    to: Version,
) -> Option<Cow<'a, str>> {
    if method == CreateMessage::METHOD && to < Version::V2025_11_25 {
        return to_single_block(result, to);
    }
    Some(Cow::Borrowed(result))
}

/// The callbacks in a legacy server's [`URL_ELICITATION_REQUIRED`] error object: params of
/// `elicitation/create`, each for one entry of `inputRequests`. `None` for any other error.
#[must_use]
pub fn url_callbacks(error: &str) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct UrlError<'a> {
        code: i64,
        #[serde(borrow)]
        data: Elicitations<'a>,
    }
    #[derive(Deserialize)]
    struct Elicitations<'a> {
        #[serde(borrow)]
        elicitations: Vec<&'a RawValue>,
    }
    let parsed: UrlError<'_> = lookalike::from_object(error).ok()?;
    if parsed.code != URL_ELICITATION_REQUIRED {
        return None;
    }
    let asked: Option<Vec<String>> = parsed
        .data
        .elicitations
        .iter()
        .map(|params| url_callback(params.get()))
        .collect();
    asked.filter(|asked| !asked.is_empty())
}

fn url_callback(params: &str) -> Option<String> {
    member(params, "url")?;
    let asked = to_stateless_callback(params);
    let mut splice = Splice::new(&asked);
    if member(&asked, "mode").is_none() {
        splice.insert_member(&asked, "mode", r#""url""#);
    }
    Some(splice.finish().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: &str = "elicitation/create";
    const SAMPLE: &str = "sampling/createMessage";

    fn converted(method: &str, params: &str, to: Version) -> Option<String> {
        to_legacy_callback(method, Some(params), to, "e1").map(Cow::into_owned)
    }

    /// MCP 2025-11-25 requires an id that 2026-07-28 no longer has.
    #[test]
    fn url_elicitation_is_converted_for_versions_that_support_it() {
        let url = r#"{"mode":"url","message":"m","url":"https://a"}"#;
        assert_eq!(
            converted(ASK, url, Version::V2025_11_25).unwrap(),
            r#"{"elicitationId":"e1","mode":"url","message":"m","url":"https://a"}"#
        );
        assert_eq!(converted(ASK, url, Version::V2025_06_18), None);
        let named = r#"{"mode":"url","elicitationId":"mine"}"#;
        assert_eq!(converted(ASK, named, Version::V2025_11_25).unwrap(), named);
    }

    #[test]
    fn titled_choices_become_enum_names() {
        let form = r#"{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"c":{"type":"string","title":"C","oneOf":[{"const":"r","title":"Red"},{"const":"g"}]},"n":{"type":"number","minimum":1.0}},"required":["c"]}}"#;
        assert_eq!(
            converted(ASK, form, Version::V2025_06_18).unwrap(),
            r#"{"message":"m","requestedSchema":{"type":"object","properties":{"c":{"type":"string","title":"C","enum":["r","g"],"enumNames":["Red","g"]},"n":{"type":"number","minimum":1.0}},"required":["c"]}}"#
        );
        assert_eq!(converted(ASK, form, Version::V2025_11_25).unwrap(), form);
        assert_eq!(converted(ASK, form, Version::V2025_03_26), None);
        let several = r#"{"requestedSchema":{"properties":{"c":{"type":"array","items":{}}}}}"#;
        assert_eq!(converted(ASK, several, Version::V2025_06_18), None);
    }

    #[test]
    fn sampling_messages_have_one_block_for_older_clients() {
        let text = r#"{"type":"text","text":"t"}"#;
        let with = |content: &str, rest: &str| {
            format!(r#"{{"messages":[{{"role":"user","content":{content}}}],"maxTokens":1{rest}}}"#)
        };
        let one = with(text, "");
        let listed = with(&format!("[{text}]"), "");
        let two = with(&format!("[{text},{text}]"), "");
        let audio = with(r#"{"type":"audio"}"#, "");
        let tools = with(text, r#","tools":[{}]"#);
        let old = Version::V2024_11_05;
        assert_eq!(converted(SAMPLE, &one, old).as_ref(), Some(&one));
        assert_eq!(converted(SAMPLE, &listed, old).as_ref(), Some(&one));
        for params in [&two, &audio, &tools] {
            assert_eq!(converted(SAMPLE, params, old), None, "{params}");
            assert_eq!(
                converted(SAMPLE, params, Version::V2025_11_25).as_ref(),
                Some(params)
            );
        }
        assert_eq!(
            converted(SAMPLE, &audio, Version::V2025_03_26).as_ref(),
            Some(&audio)
        );
        assert_eq!(
            to_legacy_callback("roots/list", None, old, "e").unwrap(),
            "{}"
        );
        assert_eq!(to_legacy_callback("tools/list", None, old, "e"), None);
    }

    #[test]
    fn sampled_message_is_converted_for_its_server() {
        let listed = r#"{"role":"assistant","model":"m","content":[{"type":"text","text":"t"}]}"#;
        let answer = |to| to_legacy_callback_result(SAMPLE, listed, to).unwrap();
        assert_eq!(
            answer(Version::V2025_06_18),
            r#"{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#
        );
        assert_eq!(answer(Version::V2025_11_25), listed);
    }

    #[test]
    fn legacy_callback_loses_its_servers_metadata() {
        let url = r#"{"mode":"url","elicitationId":"e","url":"u","task":{"ttl":1},"_meta":{"progressToken":1,"io.modelcontextprotocol/related-task":{},"k":2}}"#;
        assert_eq!(
            to_stateless_callback(url),
            r#"{"mode":"url","url":"u","_meta":{"k":2}}"#
        );
        let named = r#"{"message":"m","_meta":{"mgp\/relatedRequestId":7}}"#;
        assert_eq!(strip_related_call(named), r#"{"message":"m"}"#);
        let form = r#"{ "message":"a task" }"#;
        assert!(matches!(strip_related_call(form), Cow::Borrowed(text) if text == form));
        assert!(matches!(to_stateless_callback(form), Cow::Borrowed(text) if text == form));
    }

    #[test]
    fn required_urls_become_callbacks() {
        let error = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"u","message":"go"},{"url":"v"}]}}"#;
        assert_eq!(
            url_callbacks(error).unwrap(),
            [
                r#"{"mode":"url","url":"u","message":"go"}"#,
                r#"{"mode":"url","url":"v"}"#
            ]
        );
        for other in [
            r#"{"code":-32602,"data":{"elicitations":[{"url":"u"}]}}"#,
            r#"{"code":-32042,"data":{"elicitations":[]}}"#,
            r#"{"code":-32042}"#,
        ] {
            assert_eq!(url_callbacks(other), None, "{other}");
        }
    }
}
