//! The schemas of tools of other nodes: few of them are called, so each is compiled when it is needed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mgp_engine::tools::catalog::CatalogTool;
use mgp_engine::tools::schema::{Mismatch, Schema, SchemaCache, ToolSchema};
use mgp_json::{can_contain_string, member};
use mgp_protocol::refusal::Refusal;
use tokio::sync::Semaphore;

use mgp_runtime::task;

/// Bytes that compiled schemas may take: some 2,500 of the usual size, or those of some 60 tools whose schemas
/// have a pattern each. Beyond, those that were not needed lately are compiled again.
const SCHEMAS_MAX: usize = 32 << 20;

/// Schemas compiled at once: each may take many times its own memory meanwhile. Further calls wait for a permit, each
/// for as long as a call may.
const COMPILATIONS_MAX: usize = 2;

/// Compiles schemas and caches the recently used ones.
#[derive(Debug)]
pub struct CompiledSchemas {
    cache: Mutex<SchemaCache>,
    permits: Semaphore,
}

impl Default for CompiledSchemas {
    fn default() -> Self {
        Self {
            cache: Mutex::new(SchemaCache::new(SCHEMAS_MAX)),
            permits: Semaphore::new(COMPILATIONS_MAX),
        }
    }
}

impl CompiledSchemas {
    /// How many are cached.
    #[must_use]
    pub fn cached_count(&self) -> usize {
        self.lock_cache().schema_count()
    }

    /// The `inputSchema` of a tool.
    ///
    /// # Errors
    /// [`Refusal::Internal`]: compiling it failed, which it did not when the tool was listed.
    pub(crate) async fn input_schema(&self, tool: &CatalogTool) -> Result<Schema, Refusal> {
        self.compile_cached(tool, &tool.input, Schema::compile_input)
            .await
    }

    /// The `outputSchema` of a tool.
    ///
    /// # Errors
    /// [`Refusal::Internal`]: compiling it failed, which it did not when the tool was listed.
    pub(crate) async fn output_schema(
        &self,
        tool: &CatalogTool,
        schema: &ToolSchema,
    ) -> Result<Schema, Refusal> {
        self.compile_cached(tool, schema, Schema::compile_output)
            .await
    }

    /// Whether structured content that was masked still fits the `outputSchema`, with its formats, which some clients
    /// assert. Such a schema is not cached: few results are masked.
    ///
    /// # Errors
    /// Where it does not fit, and by which keyword; or a [`Refusal`] if the schema cannot be compiled.
    pub(crate) async fn check_formats(
        &self,
        tool: &CatalogTool,
        structured: &str,
    ) -> Result<Result<(), Mismatch>, Refusal> {
        let Some(schema) = member(&tool.raw, "outputSchema") else {
            return Ok(Ok(()));
        };
        if !can_contain_string(schema.as_bytes(), "\"format\"") {
            return Ok(Ok(()));
        }
        let _turn = self.permits.acquire().await;
        let schema = schema.to_owned();
        let compiling = task::run_blocking("schema.compile", move || {
            Schema::compile_with_formats(&schema)
        });
        let compiled = compiling
            .await
            .map_err(|broken| Refusal::Internal(broken.to_string()))?;
        let compiled = compiled.map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(compiled.check(structured))
    }

    async fn compile_cached<E: std::fmt::Display + Send + 'static>(
        &self,
        tool: &CatalogTool,
        schema: &ToolSchema,
        compile: fn(&str) -> Result<Schema, E>,
    ) -> Result<Schema, Refusal> {
        if let Some(kept) = schema.compiled() {
            return Ok(kept.clone());
        }
        let text = schema.text(&tool.raw).unwrap_or_default().to_owned();
        if let Some(known) = self.lock_cache().get(&text) {
            return Ok(known);
        }
        let _turn = self.permits.acquire().await;
        // The previous permit holder may have compiled the same schema.
        if let Some(known) = self.lock_cache().get(&text) {
            return Ok(known);
        }
        // It may be slow, so it does not run on the threads that carry calls.
        let compiling = task::run_blocking("schema.compile", move || (compile(&text), text));
        let (compiled, text) = compiling
            .await
            .map_err(|broken| Refusal::Internal(broken.to_string()))?;
        let compiled = compiled.map_err(|error| Refusal::Internal(error.to_string()))?;
        self.lock_cache().insert(&text, compiled.clone());
        Ok(compiled)
    }

    fn lock_cache(&self) -> MutexGuard<'_, SchemaCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mgp_engine::tools::catalog::{ListKind, ServerOffer};
    use mgp_protocol::ids::ServerId;
    use serde_json::value::RawValue;

    use super::*;
    use crate::checks::schema;
    use crate::result_names::ResultNames;

    const ADD: &str = r#"{"name":"add","inputSchema":{"type":"object","properties":{"a":{"type":"integer"}}},
        "outputSchema":{"type":"object","required":["sum"]}}"#;

    fn tool(server: &str) -> Arc<CatalogTool> {
        let offer = ServerOffer::new(ServerId::new(server)).with_list(ListKind::Tools, &[ADD]);
        assert!(offer.rejected().0.is_empty());
        Arc::clone(&offer.tools()[0])
    }

    async fn call(schemas: &CompiledSchemas, tool: &CatalogTool, arguments: &str) -> String {
        let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
        let judged = schema::check_arguments(schemas, "add", tool, Some(&arguments)).await;
        judged.map_or_else(|refusal| format!("{refusal:?}"), |()| "taken".into())
    }

    /// CMCP-009, CMCP-012: a tool of another node is held to its schemas as one of this node is, in the same
    /// words, whether its schema is compiled for the call or was for one before.
    #[tokio::test]
    async fn a_tool_of_another_node_is_held_to_its_schemas() {
        let schemas = CompiledSchemas::default();
        let (here, there) = (tool("calc"), tool("nas/calc"));
        assert!(here.input.text(&here.raw).is_none(), "it is kept compiled");
        let mut weights = Vec::new();
        for arguments in [r#"{"a":1}"#, r#"{"a":"x"}"#, r#"{"a":[1]}"#] {
            let local = call(&schemas, &here, arguments).await;
            assert_eq!(local, call(&schemas, &there, arguments).await);
            assert_eq!(local == "taken", arguments == r#"{"a":1}"#, "{local}");
            weights.push(schemas.lock_cache().weight());
        }
        assert!(
            weights[0] > 0 && weights == [weights[0]; 3],
            "compiled once"
        );
        let wrong = bytes::Bytes::from_static(br#"{"content":[],"structuredContent":{"a":1}}"#);
        let mut refused = Vec::new();
        for tool in [&here, &there] {
            let result = schema::check_result(
                &schemas,
                "add",
                tool,
                ResultNames::find(&wrong),
                wrong.clone(),
                None,
            )
            .await;
            let Err(Refusal::BadResult { path, keyword, .. }) = result else {
                panic!("{result:?}")
            };
            refused.push((path, keyword));
        }
        assert_eq!(refused[0], refused[1]);
        assert_eq!(refused[0].1, "required");
    }

    /// EXT-192: a masked value that breaks a pattern, an enum, a length or a format withholds the result.
    #[tokio::test]
    async fn masked_content_that_breaks_its_schema_is_withheld() {
        let report = mgp_callers::GuardReport {
            structured_changed: true,
            ..mgp_callers::GuardReport::default()
        };
        let masked = "[redacted:email]";
        for (rule, keyword) in [
            (r#""format":"email""#, Some("format")),
            (r#""pattern":"^[a-z]+$""#, Some("pattern")),
            (r#""enum":["a"]"#, Some("enum")),
            (r#""maxLength":3"#, Some("maxLength")),
            (r#""maxLength":30"#, None),
        ] {
            let tool = format!(
                r#"{{"name":"add","inputSchema":{{"type":"object"}},"outputSchema":{{"type":"object","properties":{{"m":{{"type":"string",{rule}}}}}}}}}"#
            );
            let offer =
                ServerOffer::new(ServerId::new("calc")).with_list(ListKind::Tools, &[&*tool]);
            let tool = Arc::clone(&offer.tools()[0]);
            let result = format!(r#"{{"content":[],"structuredContent":{{"m":"{masked}"}}}}"#);
            let result = bytes::Bytes::from(result);
            let names = ResultNames::find(&result);
            let schemas = CompiledSchemas::default();
            let checked =
                schema::check_result(&schemas, "add", &tool, names, result, Some(&report)).await;
            match (checked, keyword) {
                (Ok(_), None) => {}
                (Err(Refusal::Withheld { reason, .. }), Some(keyword)) => {
                    let said = format!("at /m does not fit the tool's outputSchema ({keyword})");
                    assert!(reason.contains(&said), "{reason}");
                }
                (other, _) => panic!("{rule}: {other:?}"),
            }
        }
    }
}
