//! Converts a completion callback of MGP to `sampling/createMessage` of MCP and back.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use mgp_protocol::mgp::callback::Request;

/// Token limit when the server sets none: `sampling/createMessage` requires one.
const MAX_TOKENS: u64 = 4096;
/// Model preferences that both protocols have, in their two spellings.
const PRIORITIES: [(&str, &str); 3] = [
    ("cost_priority", "costPriority"),
    ("speed_priority", "speedPriority"),
    ("intelligence_priority", "intelligencePriority"),
];

#[derive(Deserialize)]
struct CompletionMessage {
    role: String,
    content: Value,
}

/// The equivalent params of `sampling/createMessage`; `None` where MCP cannot express the request, for instance with
/// tools that the answering side is to call.
#[must_use]
pub fn to_sampling_params(request: &Request<'_>) -> Option<String> {
    let no_tools = ["[]", "null"];
    if request
        .tools
        .is_some_and(|tools| !no_tools.contains(&tools.get()))
    {
        return None;
    }
    let messages: Vec<CompletionMessage> = serde_json::from_str(request.messages?.get()).ok()?;
    let (mut system, mut messages_out) = (Vec::new(), Vec::new());
    for CompletionMessage { role, content } in messages {
        let text = content.as_str();
        match (role.as_str(), text) {
            ("system", Some(text)) => system.push(text.to_owned()),
            ("user" | "assistant", Some(text)) => {
                messages_out.push(json!({"role": role, "content": {"type": "text", "text": text}}));
            }
            ("user" | "assistant", None) if content["type"].is_string() => {
                messages_out.push(json!({"role": role, "content": content}));
            }
            _ => return None,
        }
    }
    let mut params = json!({
        "messages": messages_out, "maxTokens": request.max_tokens.unwrap_or(MAX_TOKENS),
    });
    if !system.is_empty() {
        params["systemPrompt"] = system.join("\n").into();
    }
    if let Some(preferences) = to_model_preferences(request.model_hints) {
        params["modelPreferences"] = preferences;
    }
    Some(params.to_string())
}

fn to_model_preferences(hints: Option<&RawValue>) -> Option<Value> {
    let hints: Value = serde_json::from_str(hints?.get()).ok()?;
    let mut preferences = json!({});
    for (theirs, ours) in PRIORITIES {
        if hints[theirs].is_number() {
            preferences[ours] = hints[theirs].clone();
        }
    }
    let names = ["model", "provider"].into_iter();
    let names: Vec<Value> = names
        .filter_map(|name| hints[name].as_str())
        .map(|name| json!({"name": name}))
        .collect();
    if !names.is_empty() {
        preferences["hints"] = names.into();
    }
    Some(preferences)
}

/// The response to the callback from a result of `sampling/createMessage`, as JSON text.
#[must_use]
pub fn from_sampling_result(result: &str) -> Option<String> {
    let result: Value = serde_json::from_str(result).ok()?;
    let content = &result["content"];
    let content = content["text"]
        .as_str()
        .map_or_else(|| content.clone(), Into::into);
    let mut response = json!({"content": content, "tool_calls": []});
    for (theirs, ours) in [("model", "model"), ("stopReason", "stop_reason")] {
        if result[theirs].is_string() {
            response[ours] = result[theirs].clone();
        }
    }
    Some(response.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgp_protocol::mcp::parse_params;

    /// A-32: for clients with sampling.
    #[test]
    fn a_completion_is_converted_to_mcp_and_back() {
        let text = r#"{"callback_id":"llm-001","type":"llm_completion","messages":[
            {"role":"system","content":"Be brief."},{"role":"user","content":"2+2?"}],
            "model_hints":{"speed_priority":0.7,"provider":"deepseek"},"tools":[]}"#;
        let request: Request<'_> = parse_params(Some(text)).unwrap();
        let params: Value = serde_json::from_str(&to_sampling_params(&request).unwrap()).unwrap();
        assert_eq!(
            params,
            json!({
                "messages": [{"role": "user", "content": {"type": "text", "text": "2+2?"}}],
                "systemPrompt": "Be brief.", "maxTokens": 4096,
                "modelPreferences": {"speedPriority": 0.7, "hints": [{"name": "deepseek"}]},
            })
        );
        let result = r#"{"role":"assistant","content":{"type":"text","text":"4"},"model":"m"}"#;
        let response: Value = serde_json::from_str(&from_sampling_result(result).unwrap()).unwrap();
        assert_eq!(
            response,
            json!({"content": "4", "model": "m", "tool_calls": []})
        );
    }

    #[test]
    fn a_request_that_mcp_cannot_express_is_not_converted() {
        for members in [
            r#""messages":[],"tools":[{"name":"t"}]"#,
            r#""messages":[{"role":"wizard","content":"x"}]"#,
            r#""messages":"x""#,
            r#""message":"x""#,
        ] {
            let text = format!(r#"{{"callback_id":"a","type":"llm_completion",{members}}}"#);
            let request: Request<'_> = parse_params(Some(&text)).unwrap();
            assert_eq!(to_sampling_params(&request), None, "{members}");
        }
        assert_eq!(from_sampling_result("["), None);
    }
}
