//! `time`: what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

use mgp_protocol::dialect::Version;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::structured;
use mgp_engine::timestamps::{offset, parse_offset, rfc3339};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    #[serde(default)]
    utc_offset: Option<String>,
}

pub(super) fn definition() -> Value {
    json!({
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
    })
}

pub(super) fn call(arguments: &Arguments, version: Version) -> Result<Value, String> {
    let minutes = match arguments.utc_offset.as_deref().map(str::trim) {
        None => 0,
        Some(text) => parse_offset(text)
            .ok_or("utc_offset is an offset like +02:00 or -0800, at most 14 hours")?,
    };
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let unix = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let told = json!({
        "time": rfc3339(unix, minutes),
        "utc_offset": offset(minutes),
        "unix_seconds": unix,
    });
    Ok(structured(told, version))
}
