//! The parts shared by all operations of a document.

use serde_json::{Map, Value, json};

use super::reference;

/// The answer of a tool without a result schema.
pub(super) const ANSWER: &str = "ToolAnswer";

/// An answer that is not final.
const UNFINISHED: &str = "UnfinishedCall";

/// An error.
const FAILED: &str = "FailedCall";

/// The description of the document.
pub(super) const DESCRIPTION: &str = "One operation for each tool that the caller may call. The body is the object of the \
    tool's arguments. 200 is the answer: `_meta.response_type` is `answer`, or `failure` where the tool says that it \
    failed. 202 is one that is not finished: a `promise`, to be redeemed with the tool `redeem`, or an `elicitation`, \
    which says what is needed.";

/// Appended to the description of a tool whose arguments could not be described.
pub(super) const OPEN_ARGUMENTS: &str =
    "\n\n(The schema of the arguments is too large, or not one; the call is checked all the same.)";

/// The request header for the wait before a promise (RFC 7240, 4.3).
const PREFER: &str = "Prefer";

/// The request header that continues a suspended call.
pub const CONTINUATION: &str = "Mcp-Lite-Continuation";

/// The schemas shared by all operations.
pub(super) fn shared_schemas() -> Map<String, Value> {
    let meta = json!({
        "type": "object",
        "properties": {
            "response_type": { "type": "string", "description": "`answer`, or `failure`." },
            "timestamp": { "type": "string", "description": "When the answer was made (RFC 3339)." },
            "processing_time_ms": { "type": "integer" },
            "server_version": { "type": "string" },
        },
    });
    let content = json!({
        "type": "object",
        "description": "A block of content, mostly a text.",
        "properties": { "type": { "type": "string" }, "text": { "type": "string" } },
    });
    let unfinished = json!({
        "type": "object",
        "required": ["_meta"],
        "properties": { "_meta": {
            "type": "object",
            "required": ["response_type"],
            "properties": {
                "response_type": { "type": "string", "enum": ["promise", "elicitation"] },
                "promise_token": { "type": "string", "description": "For `redeem`." },
                "expires_at": { "type": "string" },
                "estimated_completion": { "type": "string" },
                "elicitation": {
                    "type": "object",
                    "description": "What is needed.",
                    "properties": { "message": { "type": "string" }, "requestedSchema": { "type": "object" } },
                },
                "continuation": { "type": "string", "description": "For the header `Mcp-Lite-Continuation`." },
            },
        } },
    });
    let failed = json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": { "type": "integer" },
                "message": { "type": "string" },
                "data": {},
            },
        } },
    });
    let all = [
        ("ToolMeta", meta),
        ("ToolContent", content),
        (ANSWER, answer_schema(None)),
        (UNFINISHED, unfinished),
        (FAILED, failed),
    ];
    all.into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

/// The answer of a tool with this result schema.
pub(super) fn answer_schema_with(structured: &Value) -> Value {
    answer_schema(Some(structured))
}

fn answer_schema(structured: Option<&Value>) -> Value {
    let open = json!({});
    json!({
        "type": "object",
        "properties": {
            "content": { "type": "array", "items": reference("ToolContent") },
            "structuredContent": structured.unwrap_or(&open),
            "isError": { "type": "boolean" },
            "_meta": reference("ToolMeta"),
        },
    })
}

/// The headers of each operation.
pub(super) fn parameters() -> Value {
    let header = |name: &str, description: &str| json!({ "name": name, "in": "header", "description": description, "schema": { "type": "string" } });
    json!({
        PREFER: header(
            PREFER,
            "`wait=N`: wait N seconds for the answer before a promise is given; `respond-async`: give one at once.",
        ),
        CONTINUATION: header(
            CONTINUATION,
            "`_meta.continuation` of an elicitation: what was asked for stands beside the arguments, and the call goes on.",
        ),
    })
}

pub(super) fn parameter_references() -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/components/parameters/{name}") });
    json!([reference(PREFER), reference(CONTINUATION)])
}

/// The bearer token scheme.
pub(super) fn security_schemes() -> Value {
    json!({ "bearer": { "type": "http", "scheme": "bearer" } })
}

/// The responses of an operation.
pub(super) fn responses(answer: &Value, token: bool) -> Value {
    let response = |description: &str, schema: &Value| json!({ "description": description, "content": { "application/json": { "schema": schema } } });
    let failed = reference(FAILED);
    let mut all = Map::new();
    let mut add = |status: &str, description: &str, schema: &Value| {
        all.insert(status.to_owned(), response(description, schema));
    };
    add("200", "The tool's answer.", answer);
    add(
        "202",
        "Not finished: a promise, or what is needed.",
        &reference(UNFINISHED),
    );
    add("400", "The arguments are not what the tool takes.", &failed);
    if token {
        add("401", "No token, or not a valid one.", &failed);
    }
    add("404", "No such tool, or not for this caller.", &failed);
    add("default", "Any other error.", &failed);
    all.into()
}
