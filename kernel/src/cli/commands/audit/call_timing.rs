//! The timing of a call, in lines below its record.

use serde_json::Value;

use crate::cli::text_format::format_duration;

/// The phases of a call, in order.
const PHASES: [&str; 5] = ["door", "checks", "queue", "server", "answer"];

/// Nodes per record: as many as it has.
const NODES_MAX: usize = 4;

/// A line for this node, and one for each node that the call was sent to; none for very short calls and other records.
pub(super) fn timing_lines(details: &Value) -> Vec<String> {
    let here = &details["parts_us"];
    if !here.is_object() {
        return Vec::new();
    }
    let nodes = details["node_parts_us"].as_array();
    let nodes = nodes.map(Vec::as_slice).unwrap_or_default();
    let whole = |node: &Value| node["whole"].as_u64().unwrap_or(0);
    let there = nodes.iter().map(whole).fold(0, u64::saturating_add);
    let way = here["server"].as_u64().unwrap_or(0).saturating_sub(there);
    let way = (!nodes.is_empty()).then_some(way);
    let mut lines = vec![format!("    {}", render_phases(here, way))];
    lines.extend(nodes.iter().take(NODES_MAX).map(|node| {
        let name = node["node"].as_str().unwrap_or("?");
        format!(
            "      at {name} {}: {}",
            format_micros(whole(node)),
            render_phases(node, None)
        )
    }));
    lines
}

/// Each phase; `way` is the part of the server's time spent on the way to other nodes.
fn render_phases(of: &Value, way: Option<u64>) -> String {
    let told = PHASES.iter().filter_map(|part| {
        let us = format_micros(of[*part].as_u64()?);
        Some(match way.filter(|_| *part == "server") {
            Some(way) => format!(
                "{part} {us} ({} of it the way there and back)",
                format_micros(way)
            ),
            None => format!("{part} {us}"),
        })
    });
    told.collect::<Vec<_>>().join(", ")
}

/// `812 µs`, `14.5 ms`, `1.2 s`, `3 min`.
fn format_micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        1_000_000..120_000_000 => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
        us => format_duration(us / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Decisions 0067 and 0069.
    #[test]
    fn the_phases_of_a_call_are_shown_for_each_node() {
        let mut details =
            json!({"parts_us": {"door": 69, "checks": 143, "server": 14_529, "answer": 19}});
        let own = "    door 69 µs, checks 143 µs, server 14.5 ms, answer 19 µs";
        assert_eq!(timing_lines(&details), [own]);
        details["node_parts_us"] =
            json!([{"node": "nas", "whole": 13_021, "checks": 61, "server": 12_900}]);
        let way = own.replace("14.5 ms", "14.5 ms (1.5 ms of it the way there and back)");
        let there = "      at nas 13.0 ms: checks 61 µs, server 12.9 ms".to_owned();
        assert_eq!(timing_lines(&details), [way, there]);
        assert!(timing_lines(&json!({"duration_ms": 0})).is_empty());
        let spans = [999, 1_000_000, 119_999_999, 120_000_000].map(format_micros);
        assert_eq!(spans, ["999 µs", "1.0 s", "119.9 s", "2 min"]);
    }
}
