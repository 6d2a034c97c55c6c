//! Parsed definitions of servers.

mod fields;
mod repair;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use mgp_json::{member, quote};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::request_headers::{BadAnnotation, ParamHeader, find_annotations};
use mgp_protocol::versions::to_legacy_tool;

use self::fields::{Fields, ItemName};
pub(super) use self::fields::{PromptArgument, range_in};
pub(super) use self::repair::repair;
use super::replica_group::CatalogReplica;
use super::{CatalogView, ListKind};
use crate::policy::pins;
use crate::policy::requirements::{CallRequirements, RequirementInputs};
use crate::servers::replica_spec::ReplicaSpec;
use crate::tool_names;
use crate::tools::apps::{self, ToolUi};
use crate::tools::schema::{BadSchema, SchemaReader, ToolSchema};
use crate::tools::skills::SKILL_FILE;
use crate::tools::uris::{BadTemplate, Template, URI_MAX};

/// Longest definition, in bytes.
pub(crate) const DEFINITION_MAX: usize = 1 << 20;
/// Longest name of a tool or prompt, in bytes. MCP recommends at most 128.
pub(crate) const NAME_MAX: usize = 1024;

/// Why a definition is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadItem {
    /// More than [`DEFINITION_MAX`] bytes.
    #[error("the definition has {0} bytes, over the limit of {DEFINITION_MAX}")]
    TooLarge(usize),
    /// Not a JSON object.
    #[error("the definition is no JSON object")]
    NotAnObject,
    /// The name or URI is missing, repeated or not a string.
    #[error("the definition must have one string \"{0}\"")]
    MissingName(&'static str),
    /// A member that some parsers take for a known one: agents and the kernel would read different definitions.
    #[error("its member {0:?} is not {1:?}, but some readers take it for that")]
    Lookalike(String, &'static str),
    /// The name or URI is empty or too long.
    #[error("\"{0}\" must have between 1 and {1} bytes")]
    NameLength(&'static str, usize),
    /// A tool is named as skills are: a grant of the skill would be one of the tool.
    #[error("\"name\" ends in {SKILL_FILE}, as the names of skills do")]
    SkillName,
    /// A required member is missing.
    #[error("the definition has no \"{0}\"")]
    MissingMember(&'static str),
    /// A member must be an array (CMCP-049).
    #[error("\"{0}\" is no array")]
    NotAnArray(&'static str),
    /// A member of the wrong type.
    #[error("\"{0}\" is not {1}")]
    InvalidMember(&'static str, &'static str),
    /// Invalid `arguments` of a prompt.
    #[error("each of \"arguments\" must be an object with a string \"name\": {0}")]
    InvalidArguments(String),
    /// The `inputSchema` of a tool (CMCP-014).
    #[error("inputSchema: {0}")]
    InputSchema(BadSchema),
    /// The `outputSchema` of a tool.
    #[error("outputSchema: {0}")]
    OutputSchema(BadSchema),
    /// An invalid `x-mcp-header` in a tool's `inputSchema` (SEP-2243): conforming clients could not call the tool.
    #[error("inputSchema: {0}")]
    ParamHeader(#[from] BadAnnotation),
    /// The `uriTemplate` of a template.
    #[error("uriTemplate: {0}")]
    Template(#[from] BadTemplate),
    /// Another entry of the list has the same own or visible name.
    #[error("another entry of this list has the same name")]
    Duplicate,
    /// The list has too many entries.
    #[error("the list has more than {0} entries")]
    TooMany(usize),
    /// The definitions of the list are too large in total.
    #[error("the list has more than {0} bytes")]
    ListTooLarge(usize),
}

/// A tool with everything that a call needs.
#[derive(Clone, Debug)]
pub struct CatalogTool {
    /// Its server.
    pub server: ServerId,
    /// The server's own name for it.
    pub own_name: Arc<str>,
    /// The same as a JSON string, for splicing into a call.
    pub own_name_json: Arc<str>,
    /// `server:tool`.
    pub canonical_name: Arc<str>,
    /// The name at its server's own endpoint: its own name, or the operator's override.
    pub exposed_name: Arc<str>,
    /// What agents see in the view of all servers.
    pub merged_name: Arc<str>,
    /// Validates arguments.
    pub input: ToolSchema,
    /// Validates structured results; `None` without an `outputSchema`.
    pub output: Option<ToolSchema>,
    /// The arguments that `Mcp-Param-*` headers repeat, by `inputSchema`.
    pub param_headers: Arc<[ParamHeader]>,
    /// The requirements of each call.
    pub requirements: Arc<CallRequirements>,
    /// What it declares about its UI; `None` for most tools.
    pub ui: Option<ToolUi>,
    /// Its replica group; `None` for nearly all tools.
    pub replica: Option<Arc<CatalogReplica>>,
    /// The definition as the server sent it, after repairs.
    pub raw: Arc<str>,
    /// The definition before repairs, if there were any.
    original: Option<Arc<str>>,
    /// The definition with the operator's override, if any.
    overridden: Option<Arc<str>>,
    /// The range of its name in the visible definition.
    pub(super) name_range: Range<u32>,
    legacy_raw: Option<Arc<str>>,
    /// Its definition for legacy clients says whether calls of it may be tasks.
    pub(super) declares_execution: bool,
}

/// A tool's definition with the URIs of apps as visible in a merged view.
pub(super) struct MergedDefinition {
    pub(super) raw: Arc<str>,
    /// For legacy clients, if they cannot read `raw`.
    pub(super) legacy: Option<Arc<str>>,
    /// The range of its name in `raw`.
    pub(super) name_range: Range<u32>,
}

/// A prompt with everything that a get needs.
#[derive(Debug)]
pub struct CatalogPrompt {
    /// Its server.
    pub server: ServerId,
    /// The server's own name for it.
    pub own_name: Arc<str>,
    /// The same as a JSON string, for splicing into a request.
    pub own_name_json: Arc<str>,
    /// `server:prompt`.
    pub(crate) canonical_name: Arc<str>,
    /// What agents see in the view of all servers.
    pub(crate) merged_name: Arc<str>,
    /// The required arguments, in the order of its definition.
    pub required_arguments: Box<[Box<str>]>,
    /// The definition as the server sent it.
    pub raw: Arc<str>,
    /// The range of its name in `raw`.
    pub(super) name_range: Range<u32>,
}

/// A resource.
#[derive(Debug)]
pub(crate) struct CatalogResource {
    /// Its server.
    pub(crate) server: ServerId,
    /// The server's own URI.
    pub(crate) uri: Arc<str>,
    /// The definition as the server sent it.
    pub(crate) raw: Arc<str>,
}

/// A family of resources.
#[derive(Debug)]
pub struct ResourceTemplate {
    /// Its server.
    pub server: ServerId,
    /// The server's own `uriTemplate`.
    pub uri_template: Arc<str>,
    /// The definition as the server sent it.
    pub raw: Arc<str>,
    pub(super) template: Template,
}

/// The common interface of the four kinds of items.
pub(super) trait Definition: Sized {
    const KIND: ListKind;
    /// Parses a definition on a single line.
    fn parse(reader: &mut ItemReader<'_>, raw: &Arc<str>) -> Result<Self, BadItem>;
    /// Sets the definition before repairs, if there were any.
    fn with_original(item: Arc<Self>, _original: Option<&Arc<str>>) -> Arc<Self> {
        item
    }
    /// Shares equal parts with another item of its list.
    fn share_with(&mut self, _other: &Self) {}
    /// Its server.
    fn server(&self) -> &ServerId;
    /// The server's own name or URI.
    fn own_name(&self) -> &Arc<str>;
    /// The name at its server's own endpoint.
    fn exposed_name(&self) -> &Arc<str> {
        self.own_name()
    }
    /// The name in a merged view.
    fn merged_name(&self) -> &Arc<str> {
        self.own_name()
    }
    fn raw(&self) -> &Arc<str>;
    /// The definition for legacy clients, if they cannot read `raw`.
    fn raw_for_legacy(&self) -> Option<&Arc<str>> {
        None
    }
}

/// The inputs for parsing the definitions of one list.
#[derive(Debug)]
pub(super) struct ItemReader<'a> {
    pub(super) server: &'a ServerId,
    pub(super) requirement_inputs: &'a RequirementInputs,
    pub(super) schemas: SchemaReader,
}

impl From<&CatalogTool> for pins::Definition {
    fn from(tool: &CatalogTool) -> Self {
        Self {
            own_name: tool.own_name.clone(),
            text: tool.original().clone(),
            kind: pins::DefinitionKind::Tool,
        }
    }
}

impl CatalogTool {
    /// Replaces the requirements of its calls.
    pub(super) fn with_requirements(&self, inputs: &RequirementInputs) -> Self {
        Self {
            requirements: Arc::new(CallRequirements::from_definition(
                &self.raw,
                &self.own_name,
                inputs,
            )),
            ..self.clone()
        }
    }

    /// Its name in a view.
    #[must_use]
    pub fn name_in_view(&self, view: &CatalogView) -> &str {
        match view {
            CatalogView::All | CatalogView::Set(_) => &self.merged_name,
            CatalogView::One(_) => &self.exposed_name,
        }
    }

    /// True for a tool that is only for apps: hosts do not show it to models (SEP-1865, visibility).
    #[must_use]
    pub fn is_app_only(&self) -> bool {
        self.ui.is_some_and(|ui| ui.is_app_only)
    }

    /// False for an app's tool in a merged view, where apps of all servers share one connection, unless the operator allows
    /// it.
    #[must_use]
    pub fn is_in_view(&self, view: &CatalogView) -> bool {
        !self.is_app_only() || !view.is_merged() || self.requirements.rules().merged_app_tools
    }

    /// The definition for a merged view; `None` if it has no URIs of apps, so that it is that of other views.
    pub(super) fn merged_definition(&self) -> Option<MergedDefinition> {
        self.ui?;
        let wrap = |text: &str| apps::wrap_in_definition(text, &self.server).map(Arc::<str>::from);
        let text = wrap(self.visible_raw())?;
        let fields = Fields::parse(&text).and_then(|fields| fields.own_name("name", usize::MAX));
        let name = fields.expect("the definition was read before").json;
        let name_range = range_in(&text, name);
        let legacy = self.legacy_raw.as_ref();
        let legacy = legacy.map(|legacy| wrap(legacy).unwrap_or_else(|| Arc::clone(legacy)));
        Some(MergedDefinition {
            raw: text,
            legacy,
            name_range,
        })
    }

    /// The definition as the server sent it, which is the pinned one.
    #[must_use]
    pub fn original(&self) -> &Arc<str> {
        self.original.as_ref().unwrap_or(&self.raw)
    }

    /// The definition that agents get.
    #[must_use]
    pub fn visible_raw(&self) -> &Arc<str> {
        self.overridden.as_ref().unwrap_or(&self.raw)
    }

    /// Overrides the visible definition and name. The tool leaves its replica group, whose other members are not overridden.
    pub(super) fn with_override(&self, name: Option<&str>, text: Arc<str>) -> Self {
        let fields = Fields::parse(&text).and_then(|fields| fields.own_name("name", usize::MAX));
        let own = fields.expect("the definition was read before");
        let exposed_name = name.map_or_else(|| Arc::clone(&self.exposed_name), Arc::from);
        Self {
            merged_name: tool_names::visible_name(&self.server, &exposed_name).into(),
            exposed_name,
            name_range: range_in(&text, own.json),
            legacy_raw: build_legacy_raw(&text),
            replica: None,
            overridden: Some(text),
            ..self.clone()
        }
    }

    /// Sets the replica data of its server.
    pub(super) fn with_replica_spec(&self, spec: Option<&ReplicaSpec>) -> Self {
        let replica = spec.and_then(|spec| CatalogReplica::new(&self.own_name, &self.raw, spec));
        Self {
            replica: replica.map(Arc::new),
            ..self.clone()
        }
    }
}

impl Definition for CatalogTool {
    const KIND: ListKind = ListKind::Tools;

    fn parse(reader: &mut ItemReader<'_>, raw: &Arc<str>) -> Result<Self, BadItem> {
        let fields = Fields::parse(raw)?;
        let name = fields.own_name("name", NAME_MAX)?;
        if name.text.ends_with(SKILL_FILE) {
            return Err(BadItem::SkillName);
        }
        let header = ItemNames::new(reader.server, raw, &name);
        let input = fields.schema("inputSchema");
        let input = input.ok_or(BadItem::MissingMember("inputSchema"))?;
        let param_headers = find_annotations(input);
        let input = reader.schemas.input_schema(raw, range_in(raw, input));
        let output = fields.schema("outputSchema");
        let output = output.map(|output| reader.schemas.output_schema(raw, range_in(raw, output)));
        let legacy_raw = build_legacy_raw(raw);
        let for_legacy: &str = legacy_raw.as_ref().unwrap_or(raw);
        Ok(Self {
            server: reader.server.clone(),
            exposed_name: Arc::clone(&header.own_name),
            own_name: header.own_name,
            own_name_json: header.own_name_json,
            canonical_name: header.canonical_name,
            merged_name: header.merged_name,
            original: None,
            overridden: None,
            input: input.map_err(BadItem::InputSchema)?,
            output: output.transpose().map_err(BadItem::OutputSchema)?,
            param_headers: match param_headers? {
                none if none.is_empty() => Arc::default(),
                some => some.into(),
            },
            requirements: Arc::new(CallRequirements::from_definition(
                raw,
                &name.text,
                reader.requirement_inputs,
            )),
            ui: ToolUi::parse(raw),
            replica: None,
            declares_execution: member(for_legacy, "execution").is_some(),
            legacy_raw,
            raw: Arc::clone(raw),
            name_range: header.name_range,
        })
    }

    fn with_original(item: Arc<Self>, original: Option<&Arc<str>>) -> Arc<Self> {
        if item.original.as_ref() == original {
            item
        } else {
            Arc::new(Self {
                original: original.cloned(),
                ..Self::clone(&item)
            })
        }
    }

    fn share_with(&mut self, other: &Self) {
        if self.requirements == other.requirements {
            self.requirements = Arc::clone(&other.requirements);
        }
    }

    fn raw_for_legacy(&self) -> Option<&Arc<str>> {
        self.legacy_raw.as_ref()
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own_name(&self) -> &Arc<str> {
        &self.own_name
    }

    fn exposed_name(&self) -> &Arc<str> {
        &self.exposed_name
    }

    fn merged_name(&self) -> &Arc<str> {
        &self.merged_name
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

impl Definition for CatalogPrompt {
    const KIND: ListKind = ListKind::Prompts;

    fn parse(reader: &mut ItemReader<'_>, raw: &Arc<str>) -> Result<Self, BadItem> {
        let fields = Fields::parse(raw)?;
        let name = fields.own_name("name", NAME_MAX)?;
        let header = ItemNames::new(reader.server, raw, &name);
        Ok(Self {
            server: reader.server.clone(),
            own_name: header.own_name,
            own_name_json: header.own_name_json,
            canonical_name: header.canonical_name,
            merged_name: header.merged_name,
            required_arguments: fields.required_arguments()?,
            raw: Arc::clone(raw),
            name_range: header.name_range,
        })
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own_name(&self) -> &Arc<str> {
        &self.own_name
    }

    fn merged_name(&self) -> &Arc<str> {
        &self.merged_name
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

impl Definition for CatalogResource {
    const KIND: ListKind = ListKind::Resources;

    fn parse(reader: &mut ItemReader<'_>, raw: &Arc<str>) -> Result<Self, BadItem> {
        let fields = Fields::parse(raw)?;
        let uri = fields.own_name("uri", URI_MAX)?;
        fields.check_titled()?;
        Ok(Self {
            server: reader.server.clone(),
            uri: uri.text.into(),
            raw: Arc::clone(raw),
        })
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own_name(&self) -> &Arc<str> {
        &self.uri
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

impl Definition for ResourceTemplate {
    const KIND: ListKind = ListKind::Templates;

    fn parse(reader: &mut ItemReader<'_>, raw: &Arc<str>) -> Result<Self, BadItem> {
        let fields = Fields::parse(raw)?;
        let uri = fields.own_name("uriTemplate", URI_MAX)?;
        fields.check_titled()?;
        Ok(Self {
            server: reader.server.clone(),
            template: Template::parse(&uri.text)?,
            uri_template: uri.text.into(),
            raw: Arc::clone(raw),
        })
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own_name(&self) -> &Arc<str> {
        &self.uri_template
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

/// The definition with another name or URI; every other byte stays.
pub(super) fn rename_member(raw: &str, member: &'static str, to: &str) -> Arc<str> {
    let fields = Fields::parse(raw).and_then(|fields| fields.own_name(member, usize::MAX));
    let own = fields.expect("the definition was read before");
    own.replace_in(raw, to)
}

/// The names of a tool or prompt.
struct ItemNames {
    own_name: Arc<str>,
    own_name_json: Arc<str>,
    canonical_name: Arc<str>,
    merged_name: Arc<str>,
    name_range: Range<u32>,
}

impl ItemNames {
    fn new(server: &ServerId, raw: &str, own: &ItemName<'_>) -> Self {
        let shown = tool_names::visible_name(server, &own.text);
        Self {
            own_name: own.text.as_str().into(),
            own_name_json: quote(&own.text).into(),
            canonical_name: tool_names::canonical_name(server, &own.text).into(),
            name_range: range_in(raw, own.json),
            merged_name: shown.into(),
        }
    }
}

/// A tool's definition for legacy clients, where it has to be another one. What they do not see of
/// it, the kernel checks all the same.
fn build_legacy_raw(raw: &str) -> Option<Arc<str>> {
    match to_legacy_tool(raw) {
        Cow::Borrowed(_) => None,
        Cow::Owned(other) => Some(other.into()),
    }
}
