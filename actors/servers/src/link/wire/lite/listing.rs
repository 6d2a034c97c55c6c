//! Converts the tool list of a lite server to a `tools/list` result.

use mgp_json::{Splice, member, unquote};
use mgp_protocol::lite::REDEEM;
use serde_json::value::RawValue;

/// The input schema of a tool that has none.
const ANY_OBJECT_SCHEMA: &str = r#"{"type":"object"}"#;

/// Renders the `tools/list` result from the array of §4.2.1 or the object of A.1.
///
/// # Errors
/// What is wrong with it, as text.
pub(super) fn to_mcp_list(answer: &str) -> Result<String, String> {
    let list = if answer.trim_start().starts_with('[') {
        answer
    } else {
        member(answer, "tools")
            .ok_or("its list is neither an array of tools nor an object with `tools`")?
    };
    let list: Vec<&RawValue> =
        serde_json::from_str(list).map_err(|why| format!("its `tools` are no array: {why}"))?;
    let tools = list.iter().filter(|tool| !is_redeem(tool.get()));
    let tools: Vec<_> = tools.map(|tool| ensure_schema(tool.get())).collect();
    Ok(format!(r#"{{"tools":[{}]}}"#, tools.join(",")))
}

fn is_redeem(tool: &str) -> bool {
    let name = member(tool, "name").and_then(unquote);
    name.as_deref() == Some(REDEEM)
}

fn ensure_schema(tool: &str) -> std::borrow::Cow<'_, str> {
    let schema = member(tool, "inputSchema");
    let mut splice = Splice::new(tool);
    match schema {
        None if tool.starts_with('{') => {
            splice.insert_member(tool, "inputSchema", ANY_OBJECT_SCHEMA)
        }
        Some(null @ "null") => splice.replace(null, ANY_OBJECT_SCHEMA),
        None | Some(_) => {}
    }
    splice.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LITE-036, LITE-006: both shapes are read; `redeem` is only for the kernel and never listed.
    #[test]
    fn both_list_shapes_are_read_without_redeem() {
        let redeem =
            r#"{"name":"r\u0065deem","@type":"system","inputSchema":{"required":["promise"]}}"#;
        let search = r#"{"name":"search","@type":"query","inputSchema":{"type":"object"}}"#;
        let list = format!("[{redeem},{search}]");
        let expected = format!(r#"{{"tools":[{search}]}}"#);
        assert_eq!(to_mcp_list(&list).unwrap(), expected);
        assert_eq!(
            to_mcp_list(&format!(r#"{{"tools":{list},"_meta":{{}}}}"#)).unwrap(),
            expected
        );
        let bare = r#"[{"name":"a"},{"name":"b","inputSchema":null},{},7]"#;
        let expected = r#"{"tools":[{"inputSchema":{"type":"object"},"name":"a"},{"name":"b","inputSchema":{"type":"object"}},{"inputSchema":{"type":"object"}},7]}"#;
        assert_eq!(to_mcp_list(bare).unwrap(), expected);
        for none in [r#"{"items":[]}"#, "7", r#"{"tools":{}}"#, "{"] {
            to_mcp_list(none).unwrap_err();
        }
    }
}
