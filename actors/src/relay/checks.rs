//! What goes to a tool and what comes from it is held against the tool's own schemas.

use bytes::Bytes;
use mgp_engine::catalog::Tool;
use mgp_protocol::mcp::tools::Called;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, quoted};
use serde_json::value::RawValue;

use crate::request::Outcome;

/// CMCP-009: arguments are checked before anything leaves the kernel. No arguments are `{}`.
pub(super) fn arguments(
    tool: &str,
    route: &Tool,
    arguments: Option<&RawValue>,
) -> Result<(), Refusal> {
    let Some(schema) = &route.input else {
        return Ok(());
    };
    schema
        .check(arguments.map_or("{}", RawValue::get))
        .map_err(|mismatch| Refusal::BadArguments {
            tool: tool.to_owned(),
            path: mismatch.path,
            keyword: mismatch.keyword,
            message: mismatch.message,
        })
}

/// CMCP-012, CMCP-013: a structured result fits the tool's `outputSchema`, and has a text for
/// clients that do not read it.
pub(super) fn result(tool: &str, route: &Tool, result: Bytes) -> Outcome {
    if memchr::memmem::find(&result, b"\"structuredContent\"").is_none() {
        return Ok(result);
    }
    let Some((text, called)) = read(&result) else {
        return Ok(result);
    };
    let Some(structured) = called.structured_content else {
        return Ok(result);
    };
    if let Some(schema) = route.output.as_ref().filter(|_| !called.is_error) {
        schema
            .check(structured.get())
            .map_err(|mismatch| Refusal::BadResult {
                server: route.server.clone(),
                tool: tool.to_owned(),
                path: mismatch.path,
                keyword: mismatch.keyword,
                message: mismatch.message,
            })?;
    }
    if called.content.is_some() {
        return Ok(result);
    }
    let mut splice = Splice::new(text);
    let content = format!(r#"[{{"type":"text","text":{}}}]"#, quoted(structured.get()));
    splice.insert_member(text, "content", &content);
    Ok(splice.finish().into_owned().into())
}

fn read(result: &Bytes) -> Option<(&str, Called<'_>)> {
    let text = std::str::from_utf8(result).ok()?;
    Some((text, serde_json::from_str(text).ok()?))
}
