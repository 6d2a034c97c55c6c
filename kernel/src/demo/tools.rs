//! The tools of the demo server.

mod search;

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mgp_engine::timestamps::{parse_offset, render_offset, render_rfc3339};
use mgp_protocol::dialect::Version;
use mgp_protocol::jsonrpc::{ErrorObject, INVALID_PARAMS};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::session::{DemoSession, required_text};

const MAX_STEPS: u64 = 1000;
const MAX_STEP_MS: u64 = 60_000;
const NO_ELICITATION: &str = "I would like to ask you something, but this client cannot be asked.";

/// `tools/list`, with the members of this version.
pub(super) fn list_tools(version: Version) -> Value {
    let mut tools = tool_definitions();
    for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
        if version < Version::V2025_06_18 {
            tool.shift_remove("title");
            tool.shift_remove("outputSchema");
        }
        if version < Version::V2025_03_26 {
            tool.shift_remove("annotations");
        }
    }
    json!({ "tools": tools })
}

/// `tools/call`.
pub(super) async fn call_tool(
    session: &DemoSession,
    mut params: Value,
) -> Result<Value, ErrorObject> {
    let mut arguments = params["arguments"].take();
    if arguments.is_null() {
        arguments = json!({});
    }
    let name = required_text(&params, "name")?;
    let outcome = match name {
        "time" => call_time(session.version, arguments),
        "search_text" => search::search_text(session, arguments).await,
        "slow_job" => call_slow_job(session, arguments, &params["_meta"]["progressToken"]).await,
        "ask_me" => call_ask_me(session, arguments).await,
        _ => {
            return Err(ErrorObject::new(
                INVALID_PARAMS,
                format!("Unknown tool: {name}"),
            ));
        }
    };
    match outcome {
        Err(wrong) if session.version.has_input_errors_as_results() => Ok(error_result(&wrong)),
        outcome => outcome.map_err(|wrong| ErrorObject::new(INVALID_PARAMS, wrong)),
    }
}

fn tool_definitions() -> [Value; 4] {
    let time = json!({
        "name": "time",
        "title": "Current time",
        "description": "Tells the current time, in UTC or at a given offset from it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "utc_offset": {
                    "type": "string",
                    "description": "Offset from UTC, like +02:00 or -0800; UTC when absent",
                },
            },
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "time": {"type": "string", "description": "RFC 3339"},
                "utc_offset": {"type": "string"},
                "unix_seconds": {"type": "integer"},
            },
            "required": ["time", "utc_offset", "unix_seconds"],
        },
        "annotations": {"readOnlyHint": true, "idempotentHint": false, "openWorldHint": false},
    });
    let slow_job = json!({
        "name": "slow_job",
        "title": "Slow job",
        "description": "Works step by step and reports progress; can be cancelled at any time.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "steps": {"type": "integer", "minimum": 1, "maximum": MAX_STEPS, "default": 10},
                "step_ms": {
                    "type": "integer", "minimum": 0, "maximum": MAX_STEP_MS, "default": 500,
                    "description": "Milliseconds for each step",
                },
            },
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
    });
    let ask_me = json!({
        "name": "ask_me",
        "title": "Ask me",
        "description": "Asks the person at the client for a name and a favourite colour.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": false},
        "annotations": {"readOnlyHint": true, "idempotentHint": false, "openWorldHint": false},
    });
    [time, search::tool_definition(), slow_job, ask_me]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeArguments {
    utc_offset: Option<String>,
}

fn call_time(version: Version, arguments: Value) -> Result<Value, String> {
    let TimeArguments { utc_offset } = parse_arguments(arguments)?;
    let minutes = match utc_offset.as_deref().map(str::trim) {
        None => 0,
        Some(text) => parse_offset(text)
            .ok_or("utc_offset is an offset like +02:00 or -0800, at most 14 hours")?,
    };
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let unix = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let told = json!({
        "time": render_rfc3339(unix, minutes), "utc_offset": render_offset(minutes), "unix_seconds": unix,
    });
    Ok(structured_result(told, version))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowJobArguments {
    steps: Option<u64>,
    step_ms: Option<u64>,
}

/// Reports progress if `progress` is a token and not null.
async fn call_slow_job(
    session: &DemoSession,
    arguments: Value,
    progress: &Value,
) -> Result<Value, String> {
    let SlowJobArguments { steps, step_ms } = parse_arguments(arguments)?;
    let steps = check_range("steps", steps.unwrap_or(10), 1..=MAX_STEPS)?;
    let step_ms = check_range("step_ms", step_ms.unwrap_or(500), 0..=MAX_STEP_MS)?;
    for step in 1..=steps {
        tokio::time::sleep(Duration::from_millis(step_ms)).await;
        if !progress.is_null() {
            session.notify_progress(progress, step, steps, &format!("step {step} of {steps}"));
        }
    }
    Ok(text_result(&format!("{steps} steps done")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskMeArguments {}

async fn call_ask_me(session: &DemoSession, arguments: Value) -> Result<Value, String> {
    let AskMeArguments {} = parse_arguments(arguments)?;
    if session.version < Version::V2025_06_18 || !session.client_capabilities.elicitation_form {
        return Ok(text_result(NO_ELICITATION));
    }
    let params = json!({
        "message": "Nice to meet you. Who are you?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "Your name", "minLength": 1, "maxLength": 80},
                "colour": {
                    "type": "string",
                    "title": "Favourite colour",
                    "enum": ["red", "green", "blue", "none of these"],
                },
            },
            "required": ["name"],
        },
    });
    // The client of a kernel in between may not support elicitation.
    let Some(answer) = session.elicit(&params).await else {
        return Ok(text_result(NO_ELICITATION));
    };
    if answer["action"] != "accept" {
        return Ok(text_result("You would rather not say. That is fine."));
    }
    let content = &answer["content"];
    Ok(
        match (content["name"].as_str(), content["colour"].as_str()) {
            (Some(name), Some(colour)) => {
                text_result(&format!("Hello {name}, who likes {colour}."))
            }
            (Some(name), None) => text_result(&format!("Hello {name}.")),
            (None, _) => error_result("The client accepted the question but gave no name."),
        },
    )
}

fn parse_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, String> {
    serde_json::from_value(arguments).map_err(|e| e.to_string())
}

fn check_range(name: &str, number: u64, range: RangeInclusive<u64>) -> Result<u64, String> {
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(format!(
            "{name} goes from {} to {}",
            range.start(),
            range.end()
        ))
    }
}

/// A result as text and, in versions that have it, as structured content. The text repeats the structure for clients
/// that read only text.
fn structured_result(value: Value, version: Version) -> Value {
    let mut result = text_result(&value.to_string());
    if version >= Version::V2025_06_18 {
        result["structuredContent"] = value;
    }
    result
}

fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A result that reports an error of the tool.
fn error_result(why: &str) -> Value {
    json!({"content": [{"type": "text", "text": why}], "isError": true})
}
