//! Definitions as servers wrote them, and the members the kernel reads.

use std::borrow::Cow;
use std::sync::Arc;

use mgp_protocol::era::to_legacy_tool;
use mgp_protocol::ids::ServerId;
use mgp_protocol::lookalike::lookalike;
use mgp_protocol::request_headers::{BadAnnotation, ParamHeader, annotations};
use mgp_protocol::splice::{Splice, members, quoted};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ListKind;
use super::replica_group::CatalogReplica;
use crate::policy::requirements::{CallRequirements, RequirementTerms};
use crate::servers::replica_mark::ReplicaMark;
use crate::tool_names;
use crate::tools::schema::{BadSchema, InputSchema, OutputSchema};
use crate::tools::uris::{BadTemplate, Template, URI_MAX};

/// Longest definition, in bytes.
pub const DEFINITION_MAX: usize = 1 << 20;
/// Longest name of a tool or prompt, in bytes. MCP recommends at most 128.
pub const NAME_MAX: usize = 1024;

/// Members of definitions that the kernel or agents give a meaning to.
const KNOWN: [&str; 14] = [
    "name",
    "title",
    "description",
    "icons",
    "inputSchema",
    "outputSchema",
    "annotations",
    "execution",
    "arguments",
    "uri",
    "uriTemplate",
    "mimeType",
    "security",
    "_meta",
];

/// Why a definition was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadItem {
    /// More than [`DEFINITION_MAX`] bytes.
    #[error("the definition has {0} bytes, over the limit of {DEFINITION_MAX}")]
    TooLarge(usize),
    /// Something else than a JSON object.
    #[error("the definition is no JSON object")]
    NotAnObject,
    /// What it is known by is not there, is there twice or is no string.
    #[error("the definition must have one string \"{0}\"")]
    Unnamed(&'static str),
    /// A member that some readers take for a known one: agents and the kernel would read two definitions.
    #[error("its member {0:?} is not {1:?}, but some readers take it for that")]
    Lookalike(String, &'static str),
    /// What it is known by is empty or too long.
    #[error("\"{0}\" must have between 1 and {1} bytes")]
    NameLength(&'static str, usize),
    /// A member that MCP wants of each of its kind is not there.
    #[error("the definition has no \"{0}\"")]
    Missing(&'static str),
    /// A member that is to be an array is something else (CMCP-049).
    #[error("\"{0}\" is no array")]
    NotAnArray(&'static str),
    /// Something else than what a prompt takes.
    #[error("each of \"arguments\" must be an object with a string \"name\": {0}")]
    Arguments(String),
    /// The `inputSchema` of a tool (CMCP-014).
    #[error("inputSchema: {0}")]
    InputSchema(BadSchema),
    /// The `outputSchema` of a tool.
    #[error("outputSchema: {0}")]
    OutputSchema(BadSchema),
    /// An `x-mcp-header` in a tool's `inputSchema` breaks the rules (SEP-2243): such a tool could not
    /// be called by those who keep them.
    #[error("inputSchema: {0}")]
    ParamHeader(#[from] BadAnnotation),
    /// The `uriTemplate` of a template.
    #[error("uriTemplate: {0}")]
    Template(#[from] BadTemplate),
    /// Another entry of the same list goes by the same name, as the server or as agents see it.
    #[error("another entry of this list has the same name")]
    Duplicate,
    /// The list is longer than the kernel takes.
    #[error("the list has more than {0} entries")]
    TooMany(usize),
    /// All definitions of the list together are larger than the kernel takes.
    #[error("the list has more than {0} bytes")]
    ListTooLarge(usize),
}

/// A tool, and everything a call of it needs.
#[derive(Clone, Debug)]
pub struct CatalogTool {
    /// Its server.
    pub server: ServerId,
    /// The server's own name for it.
    pub own_name: Arc<str>,
    /// The same as a JSON string, for splicing into a call.
    pub own_name_json: Arc<str>,
    /// `server:tool`.
    pub canonical: Arc<str>,
    /// What agents see in the view of all servers.
    pub shown: Arc<str>,
    /// Judges arguments.
    pub input: Arc<InputSchema>,
    /// Judges structured results; `None` when the definition has no schema.
    pub output: Option<Arc<OutputSchema>>,
    /// The arguments that `Mcp-Param-*` headers repeat, as `inputSchema` says.
    pub param_headers: Arc<[ParamHeader]>,
    /// What holds for each call.
    pub requirements: Arc<CallRequirements>,
    /// What it is one of; `None` for one that stands alone, as nearly all do.
    pub replica: Option<Arc<CatalogReplica>>,
    /// The definition as the server sent it.
    pub raw: Arc<str>,
    pub(super) shown_raw: Arc<str>,
    legacy_raw: Option<Arc<str>>,
}

/// A prompt, and everything a get of it needs.
#[derive(Debug)]
pub struct CatalogPrompt {
    /// Its server.
    pub server: ServerId,
    /// The server's own name for it.
    pub own_name: Arc<str>,
    /// The same as a JSON string, for splicing into a request.
    pub own_name_json: Arc<str>,
    /// `server:prompt`.
    pub canonical: Arc<str>,
    /// What agents see in the view of all servers.
    pub shown: Arc<str>,
    /// The arguments that a get of it must have, in the order of its definition.
    pub required: Box<[Box<str>]>,
    /// The definition as the server sent it.
    pub raw: Arc<str>,
    pub(super) shown_raw: Arc<str>,
}

/// A resource.
#[derive(Debug)]
pub struct CatalogResource {
    /// Its server.
    pub server: ServerId,
    /// The server's own URI.
    pub uri: Arc<str>,
    /// The definition as the server sent it.
    pub raw: Arc<str>,
}

/// A family of resources.
#[derive(Debug)]
pub struct ResourceTemplate {
    /// Its server.
    pub server: ServerId,
    /// The server's own `uriTemplate`.
    pub uri: Arc<str>,
    /// The definition as the server sent it.
    pub raw: Arc<str>,
    pub(super) template: Template,
}

/// What the four have in common.
pub(super) trait Definition: Sized {
    const KIND: ListKind;
    /// Reads a definition that is a single line.
    fn read(server: &ServerId, raw: &str, terms: &RequirementTerms) -> Result<Self, BadItem>;
    /// Its server.
    fn server(&self) -> &ServerId;
    /// What the server knows it by.
    fn own(&self) -> &Arc<str>;
    /// What agents know it by when it stands alone.
    fn shown(&self) -> &Arc<str> {
        self.own()
    }
    fn raw(&self) -> &Arc<str>;
    /// The definition for legacy clients, when they could not read it as it is.
    fn raw_for_legacy(&self) -> Option<&Arc<str>> {
        None
    }
}

impl CatalogTool {
    /// The same tool under other terms.
    pub(super) fn under(&self, terms: &RequirementTerms) -> Self {
        Self {
            requirements: Arc::new(CallRequirements::read(&self.raw, &self.own_name, terms)),
            ..self.clone()
        }
    }

    /// The same tool of a server with this mark.
    pub(super) fn marked(&self, mark: Option<&ReplicaMark>) -> Self {
        let replica = mark.and_then(|mark| CatalogReplica::of(&self.own_name, &self.raw, mark));
        Self {
            replica: replica.map(Arc::new),
            ..self.clone()
        }
    }
}

impl Definition for CatalogTool {
    const KIND: ListKind = ListKind::Tools;

    fn read(server: &ServerId, raw: &str, terms: &RequirementTerms) -> Result<Self, BadItem> {
        let fields = Fields::of(raw)?;
        let name = fields.own("name", NAME_MAX)?;
        let ItemHeader {
            own_name,
            own_name_json,
            canonical,
            shown,
            shown_raw,
        } = ItemHeader::of(server, raw, &name);
        let input = fields.schema("inputSchema");
        let input = input.ok_or(BadItem::Missing("inputSchema"))?;
        let param_headers = annotations(input);
        let input = InputSchema::compile(input);
        let output = fields.schema("outputSchema").map(OutputSchema::compile);
        Ok(Self {
            server: server.clone(),
            own_name,
            own_name_json,
            canonical,
            shown,
            input: Arc::new(input.map_err(BadItem::InputSchema)?),
            output: output
                .transpose()
                .map_err(BadItem::OutputSchema)?
                .map(Arc::new),
            param_headers: param_headers?.into(),
            requirements: Arc::new(CallRequirements::read(raw, &name.text, terms)),
            replica: None,
            legacy_raw: legacy_raw(raw),
            raw: raw.into(),
            shown_raw,
        })
    }

    fn raw_for_legacy(&self) -> Option<&Arc<str>> {
        self.legacy_raw.as_ref()
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own(&self) -> &Arc<str> {
        &self.own_name
    }

    fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

impl Definition for CatalogPrompt {
    const KIND: ListKind = ListKind::Prompts;

    fn read(server: &ServerId, raw: &str, _terms: &RequirementTerms) -> Result<Self, BadItem> {
        let fields = Fields::of(raw)?;
        let name = fields.own("name", NAME_MAX)?;
        let ItemHeader {
            own_name,
            own_name_json,
            canonical,
            shown,
            shown_raw,
        } = ItemHeader::of(server, raw, &name);
        Ok(Self {
            server: server.clone(),
            own_name,
            own_name_json,
            canonical,
            shown,
            required: fields.required()?,
            raw: raw.into(),
            shown_raw,
        })
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own(&self) -> &Arc<str> {
        &self.own_name
    }

    fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

impl Definition for CatalogResource {
    const KIND: ListKind = ListKind::Resources;

    fn read(server: &ServerId, raw: &str, _terms: &RequirementTerms) -> Result<Self, BadItem> {
        let fields = Fields::of(raw)?;
        let uri = fields.own("uri", URI_MAX)?;
        fields.titled()?;
        Ok(Self {
            server: server.clone(),
            uri: uri.text.into(),
            raw: raw.into(),
        })
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own(&self) -> &Arc<str> {
        &self.uri
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

impl Definition for ResourceTemplate {
    const KIND: ListKind = ListKind::Templates;

    fn read(server: &ServerId, raw: &str, _terms: &RequirementTerms) -> Result<Self, BadItem> {
        let fields = Fields::of(raw)?;
        let uri = fields.own("uriTemplate", URI_MAX)?;
        fields.titled()?;
        Ok(Self {
            server: server.clone(),
            template: Template::parse(&uri.text)?,
            uri: uri.text.into(),
            raw: raw.into(),
        })
    }

    fn server(&self) -> &ServerId {
        &self.server
    }

    fn own(&self) -> &Arc<str> {
        &self.uri
    }

    fn raw(&self) -> &Arc<str> {
        &self.raw
    }
}

/// The definition with another name or URI; every other byte stays.
pub(super) fn renamed(raw: &str, member: &'static str, to: &str) -> Arc<str> {
    let fields = Fields::of(raw).and_then(|fields| fields.own(member, usize::MAX));
    let own = fields.expect("the definition was read before");
    own.replaced(raw, to)
}

/// One of what a prompt takes.
#[derive(Deserialize)]
pub(super) struct PromptArgument {
    pub(super) name: String,
    #[serde(default)]
    pub(super) required: bool,
}

/// The members of a definition.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// What a definition is known by, decoded and as it stands in the text.
struct OwnMember<'a> {
    text: String,
    json: &'a str,
}

impl<'a> Fields<'a> {
    fn of(raw: &'a str) -> Result<Self, BadItem> {
        if raw.len() > DEFINITION_MAX {
            return Err(BadItem::TooLarge(raw.len()));
        }
        let fields = Self(members(raw).ok_or(BadItem::NotAnObject)?);
        let alike =
            |(name, _): &(Cow<'_, str>, _)| Some((name.to_string(), lookalike(name, &KNOWN)?));
        if let Some((member, known)) = fields.0.iter().find_map(alike) {
            return Err(BadItem::Lookalike(member, known));
        }
        fields.array("icons")?;
        Ok(fields)
    }

    /// What stands under a name; more than once in a definition that readers understand each otherwise.
    fn all(&self, member: &'static str) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |(name, _)| name == member);
        found.map(|(_, json)| json.get())
    }

    /// A member that is an array, where it is there.
    fn array(&self, member: &'static str) -> Result<Option<&'a str>, BadItem> {
        match self.all(member).all(|json| json.starts_with('[')) {
            true => Ok(self.all(member).last()),
            false => Err(BadItem::NotAnArray(member)),
        }
    }

    /// What is known by a URI has a name for people, too.
    fn titled(&self) -> Result<(), BadItem> {
        let mut names = self.all("name").peekable();
        let there = names.peek().is_some() && names.all(|json| json.starts_with('"'));
        there.then_some(()).ok_or(BadItem::Unnamed("name"))
    }

    /// The arguments of a prompt that it cannot do without.
    fn required(&self) -> Result<Box<[Box<str>]>, BadItem> {
        let listed = self.array("arguments")?.unwrap_or("[]");
        let listed: Vec<PromptArgument> =
            serde_json::from_str(listed).map_err(|e| BadItem::Arguments(e.to_string()))?;
        let required = listed.into_iter().filter(|argument| argument.required);
        Ok(required.map(|argument| argument.name.into()).collect())
    }

    fn own(&self, member: &'static str, max: usize) -> Result<OwnMember<'a>, BadItem> {
        let mut found = self.0.iter().filter(|(name, _)| name == member);
        // Of two, one peer would read the first and the next one the last.
        let (Some((_, json)), None) = (found.next(), found.next()) else {
            return Err(BadItem::Unnamed(member));
        };
        let json = json.get();
        let text: String = serde_json::from_str(json).map_err(|_| BadItem::Unnamed(member))?;
        if text.is_empty() || text.len() > max {
            return Err(BadItem::NameLength(member, max));
        }
        Ok(OwnMember { text, json })
    }

    fn schema(&self, member: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|(name, _)| name == member);
        found
            .map(|(_, json)| json.get())
            .filter(|json| *json != "null")
    }
}

impl OwnMember<'_> {
    fn replaced(&self, raw: &str, to: &str) -> Arc<str> {
        let mut splice = Splice::new(raw);
        splice.replace(self.json, quoted(to));
        splice.finish().into()
    }
}

/// The names of a tool or prompt.
struct ItemHeader {
    own_name: Arc<str>,
    own_name_json: Arc<str>,
    canonical: Arc<str>,
    shown: Arc<str>,
    shown_raw: Arc<str>,
}

impl ItemHeader {
    fn of(server: &ServerId, raw: &str, own: &OwnMember<'_>) -> Self {
        let shown = tool_names::shown(server, &own.text);
        Self {
            own_name: own.text.as_str().into(),
            own_name_json: quoted(&own.text).into(),
            canonical: tool_names::canonical(server, &own.text).into(),
            shown_raw: own.replaced(raw, &shown),
            shown: shown.into(),
        }
    }
}

/// A tool's definition for legacy clients, where it has to be another one. What they do not see of
/// it, the kernel checks all the same.
fn legacy_raw(raw: &str) -> Option<Arc<str>> {
    match to_legacy_tool(raw) {
        Cow::Borrowed(_) => None,
        Cow::Owned(other) => Some(other.into()),
    }
}
