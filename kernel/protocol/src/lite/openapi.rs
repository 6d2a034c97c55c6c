//! The OpenAPI 3.1 document of the tools that a caller may call: each tool is an operation of its own, with
//! its arguments as the body.
//!
//! Definitions of servers cannot make the document invalid, refer out of it, or remove another tool: names
//! are made unique, schemas are translated ([`schemas`]), and constructs that cannot be expressed are left
//! unrestricted. The endpoint validates each call by the tool's own schema.

mod names;
mod schemas;
mod shared_parts;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::names::{UniqueNames, operation_ids};
use self::schemas::{SCHEMA_MAX, SchemaKind};

pub use self::names::{parse_path_segment, path_segment};
pub use self::shared_parts::CONTINUATION;

/// The most bytes of schemas in one document, as sent by their servers. The schemas of further tools are
/// left unrestricted, so that programs can load the document.
const SCHEMAS_MAX: usize = 8 << 20;

/// The most characters of a summary: one line of a page.
const SUMMARY_MAX: usize = 120;

/// The options of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentOptions<'a> {
    /// The base URL of the paths, as in `http://127.0.0.1:7332/mcp-lite/v1`.
    pub server: &'a str,
    /// True if each request needs a bearer token.
    pub requires_token: bool,
    /// The version of the kernel.
    pub version: &'a str,
}

/// A listed tool definition. Malformed members count as absent.
#[derive(Deserialize)]
struct ListedDefinition<'a> {
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    title: Option<&'a RawValue>,
    #[serde(borrow, default)]
    description: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "inputSchema")]
    input: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "outputSchema")]
    output: Option<&'a RawValue>,
}

/// A tool with a name that is valid in a path.
struct ToolDescription<'a> {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input: Option<&'a RawValue>,
    output: Option<&'a RawValue>,
}

/// Renders the document as JSON text. `tools` are definitions as in `tools/list`; unreadable ones, and
/// those with a name that is invalid in a path, are left out.
#[must_use]
pub fn render_document(tools: &[&RawValue], options: &DocumentOptions<'_>) -> String {
    let described: Vec<ToolDescription<'_>> = tools.iter().filter_map(describe_tool).collect();
    let ids = operation_ids(described.iter().map(|tool| tool.name.as_str()));
    let mut components = Components {
        schemas: shared_parts::shared_schemas(),
        names: UniqueNames::default(),
        capacity: SCHEMAS_MAX,
    };
    for shared in components.schemas.keys() {
        components.names.reserve(shared);
    }
    let mut paths = Map::new();
    for (tool, id) in described.iter().zip(&ids) {
        let operation = operation(tool, id, options, &mut components);
        let path = format!("/tools/{}", path_segment(&tool.name));
        paths.insert(path, json!({ "post": operation }));
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tools behind mgp",
            "version": options.version,
            "description": shared_parts::DESCRIPTION,
        },
        "servers": [{ "url": options.server }],
        "paths": paths,
        "components": { "schemas": components.schemas, "parameters": shared_parts::parameters() },
    });
    if options.requires_token {
        document["components"]["securitySchemes"] = shared_parts::security_schemes();
        document["security"] = json!([{ "bearer": [] }]);
    }
    document.to_string()
}

fn describe_tool<'a>(tool: &&'a RawValue) -> Option<ToolDescription<'a>> {
    let listed: ListedDefinition<'a> = serde_json::from_str(tool.get()).ok()?;
    let text = |raw: Option<&RawValue>| serde_json::from_str::<String>(raw?.get()).ok();
    let name = text(listed.name)?;
    // A client would resolve these as path segments, in any encoding.
    if matches!(name.as_str(), "" | "." | "..") {
        return None;
    }
    Some(ToolDescription {
        name,
        title: text(listed.title),
        description: text(listed.description),
        input: listed.input,
        output: listed.output,
    })
}

/// The schemas of a document under construction.
struct Components {
    schemas: Map<String, Value>,
    names: UniqueNames,
    /// The remaining bytes for schemas.
    capacity: usize,
}

impl Components {
    /// Adds a schema with its references; returns its name, and whether it was left unrestricted.
    fn add(&mut self, wanted: &str, schema: Option<&RawValue>, kind: SchemaKind) -> (String, bool) {
        let name = self.names.reserve(wanted);
        let text = schema
            .map(RawValue::get)
            .filter(|text| text.len() <= SCHEMA_MAX.min(self.capacity));
        let made = text.and_then(|text| {
            self.capacity -= text.len();
            schemas::translate(text, &name, kind, &mut self.names)
        });
        let open = made.is_none() && schema.is_some();
        match made {
            Some(made) => self.schemas.extend(made),
            None => drop(
                self.schemas
                    .insert(name.clone(), kind.unrestricted_schema()),
            ),
        }
        (name, open)
    }
}

fn operation(
    tool: &ToolDescription<'_>,
    id: &str,
    options: &DocumentOptions<'_>,
    components: &mut Components,
) -> Value {
    let (arguments, open) = components.add(
        &format!("{id}_arguments"),
        tool.input,
        SchemaKind::Arguments,
    );
    let answer = match tool.output {
        Some(_) => {
            let wanted = format!("{id}_result");
            let (result, _) = components.add(&wanted, tool.output, SchemaKind::Result);
            let name = components.names.reserve(&format!("{id}_answer"));
            components.schemas.insert(
                name.clone(),
                shared_parts::answer_schema_with(&reference(&result)),
            );
            name
        }
        None => shared_parts::ANSWER.to_owned(),
    };
    let mut operation = Map::new();
    operation.insert("operationId".into(), id.into());
    operation.insert("summary".into(), summary(tool).into());
    let mut description = tool.description.clone().unwrap_or_default();
    if open {
        description += shared_parts::OPEN_ARGUMENTS;
    }
    if !description.trim().is_empty() {
        operation.insert("description".into(), description.trim().into());
    }
    if let Some((server, _)) = tool.name.split_once("__") {
        operation.insert("tags".into(), json!([server]));
    }
    operation.insert("parameters".into(), shared_parts::parameter_references());
    let content = json!({ "application/json": { "schema": reference(&arguments) } });
    operation.insert(
        "requestBody".into(),
        json!({ "required": true, "content": content }),
    );
    operation.insert(
        "responses".into(),
        shared_parts::responses(&reference(&answer), options.requires_token),
    );
    operation.into()
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{}{name}", schemas::COMPONENTS) })
}

/// A one-line summary: the title, or the beginning of the description, or the name.
fn summary(tool: &ToolDescription<'_>) -> String {
    let line = |text: &Option<String>| {
        let line = text
            .as_deref()?
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty())?;
        Some(line.to_owned())
    };
    let whole = line(&tool.title)
        .or_else(|| line(&tool.description))
        .unwrap_or_else(|| tool.name.clone());
    match whole.char_indices().nth(SUMMARY_MAX) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

#[cfg(test)]
mod tests;
