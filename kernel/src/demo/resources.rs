//! The resource and the template of the demo server.

use mgp_engine::tools::uris::percent_decode;
use mgp_protocol::jsonrpc::ErrorObject;
use mgp_protocol::refusal::RESOURCE_NOT_FOUND;
use serde_json::{Value, json};

use super::session::required_text;

const README: &str = "demo://readme";
const GREETING_PREFIX: &str = "demo://greeting/";
/// Longest name greeted, in characters.
const NAME_LENGTH_MAX: usize = 80;

const README_TEXT: &str = "\
# The demo server

It is built into the kernel, so that everything MCP knows can be tried without anything else:

- tools: `time`, `search_text`, `slow_job` (progress, cancellation), `ask_me` (elicitation)
- resources: this text, and `demo://greeting/{name}`
- prompts: `explain`, whose argument is completed
";

pub(super) fn list_resources() -> Value {
    json!({"resources": [{
        "uri": README,
        "name": "readme",
        "description": "What the demo server offers",
        "mimeType": "text/markdown",
    }]})
}

pub(super) fn list_templates() -> Value {
    json!({"resourceTemplates": [{
        "uriTemplate": format!("{GREETING_PREFIX}{{name}}"),
        "name": "greeting",
        "description": "A greeting for somebody",
        "mimeType": "text/plain",
    }]})
}

pub(super) fn read_resource(params: &Value) -> Result<Value, ErrorObject> {
    let uri = required_text(params, "uri")?;
    let name = uri
        .strip_prefix(GREETING_PREFIX)
        .filter(|name| !name.is_empty() && !name.contains('/'));
    let (kind, text) = match (uri, name.and_then(percent_decode)) {
        (README, _) => ("text/markdown", README_TEXT.to_owned()),
        (_, Some(name)) if name.chars().count() <= NAME_LENGTH_MAX => {
            ("text/plain", format!("Hello {name}."))
        }
        _ => {
            let error = ErrorObject::new(RESOURCE_NOT_FOUND, format!("Resource not found: {uri}"));
            return Err(error.with_data(&json!({ "uri": uri })));
        }
    };
    Ok(json!({"contents": [{"uri": uri, "mimeType": kind, "text": text}]}))
}
