//! Checks arguments and results against the tool's own schemas.

use bytes::Bytes;
use mgp_engine::tools::catalog::{CatalogPrompt, CatalogTool};
use mgp_engine::tools::schema::Mismatch;
use mgp_json::{Splice, lookalike, members, quote};
use mgp_protocol::mcp::tools::CallResult;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::CompiledSchemas;
use crate::result_names::ResultNames;
use mgp_callers::GuardReport;
use mgp_callers::request::Outcome;

/// CMCP-009: checks the arguments before anything is sent. Absent arguments count as `{}`.
pub(crate) async fn check_arguments(
    schemas: &CompiledSchemas,
    tool: &str,
    route: &CatalogTool,
    arguments: Option<&RawValue>,
) -> Result<(), Refusal> {
    if !route.requirements.rules().check_schema {
        return Ok(());
    }
    let schema = schemas.input_schema(route).await?;
    schema
        .check(arguments.map_or("{}", RawValue::get))
        .map_err(|mismatch| Refusal::BadArguments {
            tool: tool.to_owned(),
            path: mismatch.path,
            keyword: mismatch.keyword,
            message: mismatch.message,
        })
}

/// MCP-045, CMCP-043: a prompt's required arguments must be present; the server checks the rest.
pub(crate) fn check_prompt_arguments(
    name: &str,
    route: &CatalogPrompt,
    arguments: Option<&RawValue>,
) -> Result<(), Refusal> {
    if route.required_arguments.is_empty() {
        return Ok(());
    }
    let given = members(arguments.map_or("{}", RawValue::get)).unwrap_or_default();
    let is_given = |wanted: &str| {
        let mut all = given.iter();
        all.any(|(name, value)| name == wanted && value.get() != "null")
    };
    let all = route.required_arguments.iter();
    let missing: Vec<&str> = all
        .map(|wanted| &**wanted)
        .filter(|wanted| !is_given(wanted))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Refusal::BadParams(format!(
            "prompt {name} needs {}",
            missing.join(", ")
        )))
    }
}

/// CMCP-012, CMCP-013: a structured result fits the tool's `outputSchema`, and has a text for
/// clients that do not read it. What its guard changed in it has to fit, too.
pub(crate) async fn check_result(
    schemas: &CompiledSchemas,
    tool: &str,
    route: &CatalogTool,
    names: ResultNames,
    result: Bytes,
    guarded: Option<&GuardReport>,
) -> Outcome {
    // Where there is a schema, also what some clients would take for structured content is checked.
    if !names.structured_content && route.output.is_none() {
        return Ok(result);
    }
    let Ok(text) = std::str::from_utf8(&result) else {
        return Ok(result);
    };
    let called: CallResult<'_> = match lookalike::from_str(text) {
        Ok(called) => called,
        Err(error) => {
            return match lookalike::as_lookalike_message(&error) {
                None => Ok(result),
                Some(message) => Err(Refusal::BadResult {
                    server: route.server.clone(),
                    tool: tool.to_owned(),
                    path: String::new(),
                    keyword: "member".into(),
                    message,
                }),
            };
        }
    };
    let Some(structured) = called.structured_content else {
        return Ok(result);
    };
    if let Some(schema) = route.output.as_ref().filter(|_| !called.is_error) {
        let schema = schemas.output_schema(route, schema).await?;
        let is_masked = guarded.is_some_and(|report| report.structured_changed);
        schema.check(structured.get()).map_err(|mismatch| {
            if is_masked {
                return masked_refusal(route, &mismatch);
            }
            Refusal::BadResult {
                server: route.server.clone(),
                tool: tool.to_owned(),
                path: mismatch.path,
                keyword: mismatch.keyword,
                message: mismatch.message,
            }
        })?;
        if is_masked {
            let fits = schemas.check_formats(route, structured.get()).await?;
            fits.map_err(|mismatch| masked_refusal(route, &mismatch))?;
        }
    }
    if called.content.is_some() {
        return Ok(result);
    }
    let mut splice = Splice::new(text);
    let content = format!(r#"[{{"type":"text","text":{}}}]"#, quote(structured.get()));
    splice.insert_member(text, "content", &content);
    Ok(splice.finish().into_owned().into())
}

/// The refusal of a structured result that does not fit its schema once it is masked.
fn masked_refusal(route: &CatalogTool, mismatch: &Mismatch) -> Refusal {
    let place = match &*mismatch.path {
        "" => "its structured content".to_owned(),
        path => format!("its structured content at {path}"),
    };
    Refusal::Withheld {
        server: route.server.clone(),
        reason: format!(
            "{place} does not fit the tool's outputSchema ({}) once it is masked; the call was made",
            mismatch.keyword
        ),
    }
}
