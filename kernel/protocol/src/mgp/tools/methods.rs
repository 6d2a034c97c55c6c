//! MGP methods that are also tools of the kernel (A-11), as listed to clients that negotiated the method's
//! extension.

use serde_json::{Value, json};

/// A method that is listed as a tool.
struct MethodTool {
    method: &'static str,
    title: &'static str,
    description: &'static str,
    /// True if it changes nothing.
    is_read_only: bool,
    schema: &'static str,
}

/// Each schema is that of the method's params.
const ALL: [MethodTool; 12] = [
    MethodTool {
        method: "mgp/agent/ask",
        title: "Ask an agent",
        description: "Asks another connected agent and waits for its answer.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"target_agent_id":{"type":"string","description":"Such as agent.bob"},"prompt":{"type":"string"},"context":{"type":"string"},"timeout_ms":{"type":"integer","minimum":0}},"required":["target_agent_id","prompt"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/calls/read",
        title: "Read on",
        description: "Reads on in a result that was cut because it is long.",
        is_read_only: true,
        schema: r#"{"type":"object","properties":{"result_id":{"type":"string","description":"As it stands where the result was cut"},"from":{"type":"integer","minimum":0,"description":"Where to begin, in bytes"}},"required":["result_id","from"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/callback/respond",
        title: "Answer a question",
        description: "Answers what a server asked in the course of a call.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"callback_id":{"type":"string"},"response":{"description":"One of the options, a text, or what was asked for"}},"required":["callback_id","response"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/events/pending_callbacks",
        title: "Open questions",
        description: "Lists what servers asked you and was not answered yet.",
        is_read_only: true,
        schema: r#"{"type":"object","properties":{},"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/events/subscribe",
        title: "Subscribe to events",
        description: "Has the events of channels sent to you as they happen. A name that ends in .* stands for several channels.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"channels":{"type":"array","items":{"type":"string"},"maxItems":64},"filter":{"type":"object","properties":{"min_severity":{"enum":["debug","info","warning","error","critical"]}},"additionalProperties":false},"_mgp.cursor":{"type":"string","description":"First what happened after the event with this cursor"}},"required":["channels"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/events/unsubscribe",
        title: "End a subscription",
        description: "Ends a subscription to events.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"subscription_id":{"type":"string"}},"required":["subscription_id"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/events/replay",
        title: "Missed events",
        description: "Gives events of a subscription again that were sent after one of them.",
        is_read_only: true,
        schema: r#"{"type":"object","properties":{"subscription_id":{"type":"string"},"after_seq":{"type":"integer","minimum":0},"limit":{"type":"integer","minimum":1,"maximum":1000,"default":100}},"required":["subscription_id"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/events/channels",
        title: "Channels of events",
        description: "Lists the channels of events there are.",
        is_read_only: true,
        schema: r#"{"type":"object","properties":{},"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/state/rollback",
        title: "Go back",
        description: "Brings the state of a server's tools back to an earlier checkpoint.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"feature_set":{"type":"string","description":"Such as notes.notes.edit: the server and its feature set"},"checkpoint":{"type":"string"}},"required":["feature_set","checkpoint"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/channels/publish",
        title: "Publish",
        description: "Sends a message to a channel of a server, such as chat:discord:#general.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"channelId":{"type":"string","description":"The server and its channel; where the operator named a default, it may be absent"},"content":{"type":["string","array"],"description":"A text, or content blocks"},"conversationId":{"type":"string"}},"required":["content"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/stream/cancel",
        title: "Stop a call",
        description: "Stops a call of yours that is under way, and gives what there is of its result.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"request_id":{"type":["string","integer"]},"reason":{"type":"string"}},"required":["request_id"],"additionalProperties":false}"#,
    },
    MethodTool {
        method: "mgp/stream/pace",
        title: "Slow a call down",
        description: "Says how many parts a second of a result are wanted; 0 for none until a positive number.",
        is_read_only: false,
        schema: r#"{"type":"object","properties":{"request_id":{"type":["string","integer"]},"max_chunks_per_second":{"type":"number","minimum":0},"reason":{"type":"string"}},"required":["request_id","max_chunks_per_second"],"additionalProperties":false}"#,
    },
];

/// The definition of the tool for a method, in one line; `None` for other methods. `security` is added for
/// clients that support it.
#[must_use]
pub fn definition(method: &str, security: bool) -> Option<String> {
    let tool = ALL.iter().find(|tool| tool.method == method)?;
    let schema: Value = serde_json::from_str(tool.schema).expect("the schemas above are JSON");
    let mut definition = json!({
        // In characters that every model API accepts.
        "name": method.replace('/', "_"),
        "title": tool.title,
        "description": tool.description,
        "inputSchema": schema,
        "annotations": {
            "readOnlyHint": tool.is_read_only, "destructiveHint": false, "openWorldHint": false
        },
    });
    if security {
        definition["security"] = json!({
            "risk_level": "safe", "permissions_required": [], "side_effects": [],
            "reversible": true
        });
    }
    Some(definition.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::{self, Method};
    use crate::mcpl;
    use crate::mgp::agent::Ask;
    use crate::mgp::callback::Respond;
    use crate::mgp::calls::Read;
    use crate::mgp::channels;
    use crate::mgp::events::{Replay, Subscribe, Unsubscribe};
    use crate::mgp::matches_method;
    use crate::mgp::state::Rollback;
    use crate::mgp::stream::{Cancel, PACE_TOOL, Pace};

    /// A value that matches a schema of the table.
    fn example(schema: &Value) -> Value {
        if let Some(first) = schema["enum"].get(0) {
            return first.clone();
        }
        let kind = schema["type"].get(0).unwrap_or(&schema["type"]);
        match kind.as_str() {
            Some("object") => {
                let members = schema["properties"].as_object().unwrap();
                let members = members.iter();
                members
                    .map(|(name, schema)| (name.clone(), example(schema)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
            Some("array") => json!([example(&schema["items"])]),
            Some("integer" | "number") => json!(1),
            _ => json!("a"),
        }
    }

    /// A-11: the schema lists exactly the members that the method parses, and each tool is called by its
    /// listed name.
    #[test]
    fn definitions_match_the_params_of_their_methods() {
        for tool in &ALL {
            let text = definition(tool.method, false).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(matches_method(tool.method, value["name"].as_str().unwrap()));
            assert!(!text.contains('\n') && value.get("security").is_none());
            let params = example(&value["inputSchema"]).to_string();
            let said = Some(params.as_str());
            let read = match tool.method {
                Ask::METHOD => mcp::parse_params::<Ask>(said).map(drop),
                Read::METHOD => mcp::parse_params::<Read>(said).map(drop),
                Respond::METHOD => mcp::parse_params::<Respond>(said).map(drop),
                Subscribe::METHOD => mcp::parse_params::<Subscribe>(said).map(drop),
                Unsubscribe::METHOD => mcp::parse_params::<Unsubscribe>(said).map(drop),
                Replay::METHOD => mcp::parse_params::<Replay>(said).map(drop),
                Cancel::METHOD => mcp::parse_params::<Cancel<'_>>(said).map(drop),
                Rollback::METHOD => mcp::parse_params::<Rollback>(said).map(drop),
                channels::Publish::METHOD => {
                    mcp::parse_params::<mcpl::channels::Publish<'_>>(said).map(drop)
                }
                PACE_TOOL => mcp::parse_params::<Pace<'_>>(said).map(drop),
                _ => {
                    assert_eq!(params, "{}", "it takes nothing");
                    Ok(())
                }
            };
            assert!(read.is_ok(), "{}: {params}", tool.method);
        }
        let secured = definition("mgp/events/subscribe", true).unwrap();
        assert!(secured.contains(r#""risk_level":"safe""#));
        assert_eq!(definition("mgp/access/grant", false), None);
    }
}
