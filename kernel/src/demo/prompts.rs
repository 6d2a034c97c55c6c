//! The prompt of the demo server, and the completion of its argument.

use mgp_protocol::jsonrpc::{ErrorObject, INVALID_PARAMS};
use serde_json::{Value, json};

use super::session::required_text;

const PROMPT: &str = "explain";
const TOPICS: [&str; 6] = [
    "agents",
    "kernels",
    "prompts",
    "resources",
    "servers",
    "tools",
];

pub(super) fn list_prompts() -> Value {
    json!({"prompts": [{
        "name": PROMPT,
        "description": "Asks for a short explanation of a topic",
        "arguments": [{"name": "topic", "description": "What to explain", "required": true}],
    }]})
}

pub(super) fn get_prompt(params: &Value) -> Result<Value, ErrorObject> {
    let refused = |why: String| Err(ErrorObject::new(INVALID_PARAMS, why));
    let name = required_text(params, "name")?;
    if name != PROMPT {
        return refused(format!("Unknown prompt: {name}"));
    }
    let topic = params["arguments"]["topic"].as_str().unwrap_or_default();
    if topic.trim().is_empty() {
        return refused("the argument `topic` is missing".into());
    }
    let text = format!("Explain {topic} in three sentences, to somebody who is new to them.");
    Ok(json!({
        "description": format!("A short explanation of {topic}"),
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }))
}

pub(super) fn complete_argument(params: &Value) -> Value {
    let known = params["ref"]["type"] == "ref/prompt" && params["argument"]["name"] == "topic";
    let typed = params["argument"]["value"]
        .as_str()
        .unwrap_or_default()
        .to_lowercase();
    let begins = |topic: &&str| known && topic.starts_with(&typed);
    let values: Vec<_> = TOPICS.into_iter().filter(begins).collect();
    json!({"completion": {"total": values.len(), "hasMore": false, "values": values}})
}
