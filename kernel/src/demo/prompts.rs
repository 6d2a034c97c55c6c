//! The prompt of the demo server, and the completion of its argument.

use std::collections::BTreeMap;

use mgp_protocol::jsonrpc::{ErrorObject, INVALID_PARAMS};
use mgp_protocol::mcp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::server::{bad_params, refused};

const PROMPT: &str = "explain";
const TOPICS: [&str; 6] = [
    "agents",
    "kernels",
    "prompts",
    "resources",
    "servers",
    "tools",
];

pub(super) fn list() -> Value {
    json!({"prompts": [{
        "name": PROMPT,
        "description": "Asks for a short explanation of a topic",
        "arguments": [{"name": "topic", "description": "What to explain", "required": true}],
    }]})
}

pub(super) fn get(name: &str, arguments: Option<&RawValue>) -> Result<Value, ErrorObject> {
    if name != PROMPT {
        return Err(refused(INVALID_PARAMS, &format!("Unknown prompt: {name}")));
    }
    let arguments: BTreeMap<String, String> =
        mcp::read(arguments.map(RawValue::get)).map_err(|e| bad_params(&e))?;
    let topic = arguments
        .get("topic")
        .filter(|topic| !topic.trim().is_empty());
    let topic = topic.ok_or_else(|| refused(INVALID_PARAMS, "the argument `topic` is missing"))?;
    let text = format!("Explain {topic} in three sentences, to somebody who is new to them.");
    Ok(json!({
        "description": format!("A short explanation of {topic}"),
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }))
}

#[derive(Deserialize)]
struct Complete {
    argument: Argument,
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

pub(super) fn complete(params: Option<&str>) -> Result<Value, ErrorObject> {
    let reference: mcp::completion::Complete<'_> = mcp::read(params).map_err(|e| bad_params(&e))?;
    let Complete { argument } = mcp::read(params).map_err(|e| bad_params(&e))?;
    let known = reference.reference.kind == "ref/prompt" && argument.name == "topic";
    let begins = |topic: &&str| known && topic.starts_with(&argument.value.to_lowercase());
    let values: Vec<_> = TOPICS.into_iter().filter(begins).collect();
    Ok(json!({"completion": {"total": values.len(), "hasMore": false, "values": values}}))
}
