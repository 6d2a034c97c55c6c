//! `slow_job`: takes its time and tells how far it is; can be cancelled.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::server::Session;
use super::tools::text;

const MAX_STEPS: u64 = 1000;
const MAX_STEP_MS: u64 = 60_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    #[serde(default = "ten")]
    steps: u64,
    #[serde(default = "half_a_second")]
    step_ms: u64,
}

fn ten() -> u64 {
    10
}

fn half_a_second() -> u64 {
    500
}

pub(super) fn definition() -> Value {
    json!({
        "name": "slow_job",
        "title": "Slow job",
        "description": "Works step by step and reports progress; can be cancelled at any time.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "steps": {"type": "integer", "minimum": 1, "maximum": MAX_STEPS, "default": ten()},
                "step_ms": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_STEP_MS,
                    "default": half_a_second(),
                    "description": "Milliseconds for each step",
                },
            },
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
    })
}

pub(super) async fn call(
    arguments: Arguments,
    session: &Session,
    progress_token: Option<&str>,
) -> Result<Value, String> {
    let Arguments { steps, step_ms } = arguments;
    if !(1..=MAX_STEPS).contains(&steps) {
        return Err(format!("steps goes from 1 to {MAX_STEPS}"));
    }
    if step_ms > MAX_STEP_MS {
        return Err(format!("step_ms goes from 0 to {MAX_STEP_MS}"));
    }
    for step in 1..=steps {
        sleep(Duration::from_millis(step_ms)).await;
        if let Some(token) = progress_token {
            session
                .progress(token, step, steps, &format!("step {step} of {steps}"))
                .await;
        }
    }
    Ok(text(&format!("{steps} steps done")))
}
