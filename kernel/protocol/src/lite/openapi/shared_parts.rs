//! What all operations of a document share.

use serde_json::{Map, Value, json};

use super::reference;

/// The answer of a tool that does not say what its results look like.
pub(super) const ANSWER: &str = "ToolAnswer";

/// An answer that is not the last one.
const UNFINISHED: &str = "UnfinishedCall";

/// An error.
const FAILED: &str = "FailedCall";

/// What the document says of itself.
pub(super) const DESCRIPTION: &str = "One operation for each tool that the caller may call. The body is the object of the \
    tool's arguments. 200 is the answer: `_meta.response_type` is `answer`, or `failure` where the tool says that it \
    failed. 202 is one that is not finished: a `promise`, to be redeemed with the tool `redeem`, or an `elicitation`, \
    which says what is needed.";

/// Behind the description of a tool whose arguments could not be described.
pub(super) const OPEN_ARGUMENTS: &str =
    "\n\n(The schema of the arguments is too large, or not one; the call is checked all the same.)";

/// The header of a request that says how long to wait before a promise (RFC 7240, 4.3).
const PREFER: &str = "Prefer";

/// The header by which a call that asked for something goes on.
pub const CONTINUATION: &str = "Mcp-Lite-Continuation";

/// The schemas that all operations share.
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

/// The answer of a tool whose structured results look like this.
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

/// The headers that each operation takes.
pub(super) fn parameters() -> Value {
    let header = |name: &str, words: &str| json!({ "name": name, "in": "header", "description": words, "schema": { "type": "string" } });
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

/// How a token is shown.
pub(super) fn security_schemes() -> Value {
    json!({ "bearer": { "type": "http", "scheme": "bearer" } })
}

/// What an operation answers.
pub(super) fn responses(answer: &Value, token: bool) -> Value {
    let response = |words: &str, schema: &Value| json!({ "description": words, "content": { "application/json": { "schema": schema } } });
    let failed = reference(FAILED);
    let mut all = Map::new();
    let mut add = |status: &str, words: &str, schema: &Value| {
        all.insert(status.to_owned(), response(words, schema));
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
