//! The OpenAPI 3.1 document of the tools that a caller may call: each tool is an operation of its own, whose
//! body is the object of its arguments.
//!
//! What servers write into their definitions cannot make the document invalid, refer out of it, or leave
//! another tool out: names are made unique, schemas are read as what they say and written anew
//! ([`schemas`]), and what cannot be said is left open. The door checks each call by the schema itself.

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

/// Schemas of one document in bytes, as their servers wrote them. Those of the tools after that are left
/// open, so that a document stays one that programs can load.
const SCHEMAS_MAX: usize = 8 << 20;

/// Characters of a summary: one line of a page.
const SUMMARY_MAX: usize = 120;

/// What a document says beside its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentOptions<'a> {
    /// The URL that the paths follow, as in `http://127.0.0.1:7332/mcp-lite/v1`.
    pub server: &'a str,
    /// Each request has to show a bearer token.
    pub requires_token: bool,
    /// The version of the kernel.
    pub version: &'a str,
}

/// A tool, as a list has it. Members that have another form than they should are taken for none.
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

/// A tool with a name that can stand in a path.
struct ToolDescription<'a> {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input: Option<&'a RawValue>,
    output: Option<&'a RawValue>,
}

/// The document, as JSON text. `tools` are definitions as `tools/list` has them; one that cannot be read, or
/// whose name cannot stand in a path, is left out.
#[must_use]
pub fn render_document(tools: &[&RawValue], terms: &DocumentOptions<'_>) -> String {
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
        let operation = operation(tool, id, terms, &mut components);
        let path = format!("/tools/{}", path_segment(&tool.name));
        paths.insert(path, json!({ "post": operation }));
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tools behind mgp",
            "version": terms.version,
            "description": shared_parts::DESCRIPTION,
        },
        "servers": [{ "url": terms.server }],
        "paths": paths,
        "components": { "schemas": components.schemas, "parameters": shared_parts::parameters() },
    });
    if terms.requires_token {
        document["components"]["securitySchemes"] = shared_parts::security_schemes();
        document["security"] = json!([{ "bearer": [] }]);
    }
    document.to_string()
}

fn describe_tool<'a>(tool: &&'a RawValue) -> Option<ToolDescription<'a>> {
    let listed: ListedDefinition<'a> = serde_json::from_str(tool.get()).ok()?;
    let text = |raw: Option<&RawValue>| serde_json::from_str::<String>(raw?.get()).ok();
    let name = text(listed.name)?;
    // A client would take these for steps between folders, however they are written.
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

/// The schemas of a document while it is made.
struct Components {
    schemas: Map<String, Value>,
    names: UniqueNames,
    /// Bytes of schemas that still find room.
    capacity: usize,
}

impl Components {
    /// Adds a schema with all that it refers to; gives its name, and whether it had to be left open.
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
    terms: &DocumentOptions<'_>,
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
    let mut words = tool.description.clone().unwrap_or_default();
    if open {
        words += shared_parts::OPEN_ARGUMENTS;
    }
    if !words.trim().is_empty() {
        operation.insert("description".into(), words.trim().into());
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
        shared_parts::responses(&reference(&answer), terms.requires_token),
    );
    operation.into()
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{}{name}", schemas::COMPONENTS) })
}

/// One line: the title, or the beginning of the description, or the name.
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
