//! The kernel's log for programs.

use mgp_tests::harness::{Kernel, Program};
use serde_json::Value;

/// Decision 0066: with `format = "json"` each line of the log is an object of its own, whatever a server is called.
#[tokio::test]
async fn each_line_of_the_log_is_an_object() {
    let entry = Program::fixture(&[]).entry("it");
    let mut kernel = Kernel::start(&format!("[log]\nformat = \"json\"\n{entry}")).await;
    kernel.connected(&["it"]).await;
    let said = kernel.process().stderr();
    let lines: Vec<Value> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let steps = lines.iter().filter(|line| line["message"] == "lifecycle");
    let states: Vec<&Value> = steps.map(|line| &line["fields"]["to"]).collect();
    assert!(states.iter().any(|state| **state == "connected"), "{said}");
    assert!(
        lines
            .iter()
            .all(|line| line["level"].is_string() && line["timestamp"].is_string())
    );
}
