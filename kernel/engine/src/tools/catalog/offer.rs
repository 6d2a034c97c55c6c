//! The four lists of one server, parsed and bounded.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use mgp_protocol::ids::ServerId;

use super::ListKind;
use super::icons::DeclaredIcon;
use super::item::{
    BadItem, CatalogPrompt, CatalogResource, CatalogTool, Definition, ItemReader, ResourceTemplate,
    repair,
};
use crate::policy::requirements::{RequirementInputs, ToolRules};
use crate::servers::replica_spec::ReplicaSpec;
use crate::tools::catalog::freshness::Freshness;
use crate::tools::schema::SchemaReader;

/// Most entries of one list of one server. The largest known server has some hundreds.
pub(crate) const ITEMS_MAX: usize = 10_000;
/// Most resource templates of one server: reading an unlisted URI tries them all.
pub(crate) const TEMPLATES_MAX: usize = 1_000;
/// Most bytes in one list of one server.
pub(crate) const LIST_MAX: usize = 64 << 20;
/// Most rejected items stored for one list; the rest is only counted.
const REJECTED_MAX: usize = 100;
/// How many preceding items a definition is compared with to share equal parts.
const SHARING_WINDOW: usize = 8;

/// A rejected definition; the others of its list are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedItem {
    /// Its list.
    pub kind: ListKind,
    /// Its name or the beginning of its text.
    pub item: String,
    /// What is wrong with it.
    pub(crate) reason: BadItem,
}

impl fmt::Display for RejectedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}",
            self.kind.item_noun(),
            self.item,
            self.reason
        )
    }
}

/// The lists of one server. A new list of one kind leaves the others unchanged, and unchanged entries keep their compiled
/// schemas.
#[derive(Clone, Debug)]
pub struct ServerOffer {
    server: ServerId,
    requirement_inputs: Arc<RequirementInputs>,
    replica_spec: Option<ReplicaSpec>,
    pub(super) supports_tasks: bool,
    pub(super) tools: OfferedList<CatalogTool>,
    pub(super) prompts: OfferedList<CatalogPrompt>,
    pub(super) resources: OfferedList<CatalogResource>,
    pub(super) templates: OfferedList<ResourceTemplate>,
}

/// The size of each list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferCounts {
    /// Tools.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Resources.
    pub resources: usize,
    /// Resource templates.
    pub templates: usize,
}

impl ServerOffer {
    /// A server without lists.
    #[must_use]
    pub fn new(server: ServerId) -> Self {
        Self {
            server,
            requirement_inputs: Arc::default(),
            replica_spec: None,
            supports_tasks: false,
            tools: OfferedList::default(),
            prompts: OfferedList::default(),
            resources: OfferedList::default(),
            templates: OfferedList::default(),
        }
    }

    /// Replaces the list of one kind, given as the JSON texts of its definitions, which are shared. The list is stale at
    /// once and private, like those of legacy servers, unless [`ServerOffer::with_freshness`] follows.
    #[must_use]
    pub fn with_list<T: Clone + Into<Arc<str>>>(
        mut self,
        kind: ListKind,
        definitions: &[T],
    ) -> Self {
        match kind {
            ListKind::Tools => {
                self.tools = self
                    .tools
                    .read((&self.server, &self.requirement_inputs), definitions);
                self.update_tool_replicas();
            }
            ListKind::Prompts => {
                self.prompts = self
                    .prompts
                    .read((&self.server, &self.requirement_inputs), definitions)
            }
            ListKind::Resources => {
                self.resources = self
                    .resources
                    .read((&self.server, &self.requirement_inputs), definitions)
            }
            ListKind::Templates => {
                self.templates = self
                    .templates
                    .read((&self.server, &self.requirement_inputs), definitions)
            }
        }
        self
    }

    /// Replaces the requirements for calls of its tools.
    #[must_use]
    pub fn with_requirements(mut self, inputs: Arc<RequirementInputs>) -> Self {
        if self.requirement_inputs != inputs {
            let tools = self.tools.items.iter();
            self.tools.items = tools
                .map(|tool| Arc::new(tool.with_requirements(&inputs)))
                .collect();
            self.requirement_inputs = inputs;
        }
        self
    }

    /// Marks the server as a replica, or not.
    #[must_use]
    pub fn with_replica_spec(mut self, replica_spec: Option<ReplicaSpec>) -> Self {
        if self.replica_spec != replica_spec {
            self.replica_spec = replica_spec;
            let tools = self.tools.items.iter();
            self.tools.items = tools
                .map(|tool| Arc::new(tool.with_replica_spec(None)))
                .collect();
            self.update_tool_replicas();
        }
        self
    }

    pub(super) fn requirement_inputs(&self) -> &Arc<RequirementInputs> {
        &self.requirement_inputs
    }

    /// The operator's rules for what it offers.
    #[must_use]
    pub fn rules(&self) -> &ToolRules {
        &self.requirement_inputs.rules
    }

    #[must_use]
    pub(crate) fn replica_spec(&self) -> Option<&ReplicaSpec> {
        self.replica_spec.as_ref()
    }

    /// Tools that were parsed before have their replica data already.
    fn update_tool_replicas(&mut self) {
        if self.replica_spec.is_none() {
            return;
        }
        let tools = self.tools.items.iter();
        let marked = tools.map(|tool| match tool.replica {
            Some(_) => Arc::clone(tool),
            None => Arc::new(tool.with_replica_spec(self.replica_spec.as_ref())),
        });
        self.tools.items = marked.collect();
    }

    /// Replaces the list of one kind by that of `other`.
    #[must_use]
    pub fn with_list_from(mut self, kind: ListKind, other: &Self) -> Self {
        match kind {
            ListKind::Tools => {
                self.tools = other.tools.clone();
                self.requirement_inputs = Arc::clone(&other.requirement_inputs);
                self.replica_spec = other.replica_spec;
            }
            ListKind::Prompts => self.prompts = other.prompts.clone(),
            ListKind::Resources => self.resources = other.resources.clone(),
            ListKind::Templates => self.templates = other.templates.clone(),
        }
        self
    }

    /// Sets how long the list of one kind may be cached, as reported by the server.
    #[must_use]
    pub fn with_freshness(mut self, kind: ListKind, freshness: Freshness) -> Self {
        match kind {
            ListKind::Tools => self.tools.freshness = Some(freshness),
            ListKind::Prompts => self.prompts.freshness = Some(freshness),
            ListKind::Resources => self.resources.freshness = Some(freshness),
            ListKind::Templates => self.templates.freshness = Some(freshness),
        }
        self
    }

    /// Sets whether the server turns calls into tasks of the extension: legacy clients see that with each tool.
    #[must_use]
    pub fn with_task_support(mut self, supports_tasks: bool) -> Self {
        self.supports_tasks = supports_tasks;
        self
    }

    /// Removes the tools of these names.
    #[must_use]
    pub fn without_tools(mut self, hidden: &BTreeSet<String>) -> Self {
        if !hidden.is_empty() {
            let tools = self.tools.items.iter();
            let visible = tools.filter(|tool| !hidden.contains(&*tool.own_name));
            self.tools.items = visible.cloned().collect();
        }
        self
    }

    /// The offer without these prompts, by their own names.
    #[must_use]
    pub fn without_prompts(mut self, is_hidden: impl Fn(&str) -> bool) -> Self {
        if self
            .prompts
            .items
            .iter()
            .any(|prompt| is_hidden(&prompt.own_name))
        {
            let prompts = self.prompts.items.iter();
            let visible = prompts.filter(|prompt| !is_hidden(&prompt.own_name));
            self.prompts.items = visible.cloned().collect();
        }
        self
    }

    /// The permissions that calls of its tools need, each once, in the server's spelling.
    #[must_use]
    pub fn permissions(&self) -> Vec<String> {
        let tools = self.tools.items.iter();
        let all: BTreeSet<&String> = tools
            .flat_map(|tool| &tool.requirements.permissions)
            .collect();
        all.into_iter().cloned().collect()
    }

    /// How long its list of one kind may be cached; `None` without such a list, which then does not affect the merged
    /// list's freshness.
    #[must_use]
    pub(crate) fn freshness(&self, kind: ListKind) -> Option<Freshness> {
        match kind {
            ListKind::Tools => self.tools.freshness(),
            ListKind::Prompts => self.prompts.freshness(),
            ListKind::Resources => self.resources.freshness(),
            ListKind::Templates => self.templates.freshness(),
        }
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &ServerId {
        &self.server
    }

    /// Its tools, in the server's order.
    #[must_use]
    pub fn tools(&self) -> &[Arc<CatalogTool>] {
        &self.tools.items
    }

    /// Its prompts.
    #[must_use]
    pub fn prompts(&self) -> &[Arc<CatalogPrompt>] {
        &self.prompts.items
    }

    /// Its tools, shared.
    #[must_use]
    pub fn shared_tools(&self) -> Arc<[Arc<CatalogTool>]> {
        Arc::clone(&self.tools.items)
    }

    /// The icons in its lists that the kernel can serve.
    pub(super) fn icons(&self) -> impl Iterator<Item = (&ServerId, &DeclaredIcon)> {
        let lists = [
            &self.tools.icons,
            &self.prompts.icons,
            &self.resources.icons,
            &self.templates.icons,
        ];
        let icons = lists.into_iter().flat_map(|icons| icons.iter());
        icons.map(|icon| (&self.server, icon))
    }

    /// The definitions of one list, as the server sent them.
    #[must_use]
    pub fn definitions(&self, kind: ListKind) -> Vec<Arc<str>> {
        match kind {
            ListKind::Tools => {
                let tools = self.tools.items.iter();
                tools.map(|tool| Arc::clone(tool.original())).collect()
            }
            ListKind::Prompts => raw_definitions(&self.prompts),
            ListKind::Resources => raw_definitions(&self.resources),
            ListKind::Templates => raw_definitions(&self.templates),
        }
    }

    /// Whether legacy clients see its tools with task support.
    #[must_use]
    pub fn supports_tasks(&self) -> bool {
        self.supports_tasks
    }

    /// The size of each list.
    #[must_use]
    pub fn counts(&self) -> OfferCounts {
        OfferCounts {
            tools: self.tools.items.len(),
            prompts: self.prompts.items.len(),
            resources: self.resources.items.len(),
            templates: self.templates.items.len(),
        }
    }

    /// The size of the list of one kind.
    #[must_use]
    pub fn count(&self, kind: ListKind) -> usize {
        let counts = self.counts();
        match kind {
            ListKind::Tools => counts.tools,
            ListKind::Prompts => counts.prompts,
            ListKind::Resources => counts.resources,
            ListKind::Templates => counts.templates,
        }
    }

    /// Warnings about unknown security declarations of its tools.
    pub fn unrecognized_security(&self) -> impl Iterator<Item = String> {
        let tools = self.tools.items.iter();
        tools.flat_map(|tool| {
            let warnings = tool.requirements.warnings.iter();
            warnings.map(|warning| format!("tool {}: {warning}", tool.own_name))
        })
    }

    /// The rejected items: at most 100 of each list, and the number of further ones.
    #[must_use]
    pub fn rejected(&self) -> (Vec<&RejectedItem>, usize) {
        let lists = [
            &self.tools.rejected,
            &self.prompts.rejected,
            &self.resources.rejected,
            &self.templates.rejected,
        ];
        let reported = lists.iter().flat_map(|list| list.reported.iter()).collect();
        (reported, lists.iter().map(|list| list.omitted).sum())
    }

    /// The repaired items: at most 100 of each list.
    pub fn repairs(&self) -> impl Iterator<Item = &String> {
        let tools = self.tools.repairs.iter();
        let prompts = self.prompts.repairs.iter();
        let resources = self.resources.repairs.iter();
        let templates = self.templates.repairs.iter();
        tools.chain(prompts).chain(resources).chain(templates)
    }
}

fn raw_definitions<D: Definition>(list: &OfferedList<D>) -> Vec<Arc<str>> {
    let items = list.items.iter();
    items.map(|item| Arc::clone(item.raw())).collect()
}

/// One list of one server.
#[derive(Debug)]
pub(super) struct OfferedList<D> {
    pub(super) items: Arc<[Arc<D>]>,
    rejected: Arc<Rejections>,
    /// Descriptions of repaired items, with the same bound as rejected ones.
    repairs: Arc<[String]>,
    icons: Arc<[DeclaredIcon]>,
    /// As reported by the server, if it did.
    freshness: Option<Freshness>,
}

impl<D> OfferedList<D> {
    fn freshness(&self) -> Option<Freshness> {
        let default = (!self.items.is_empty()).then(Freshness::default);
        self.freshness.or(default)
    }
}

#[derive(Debug, Default)]
struct Rejections {
    reported: Vec<RejectedItem>,
    omitted: usize,
}

impl<D> Clone for OfferedList<D> {
    fn clone(&self) -> Self {
        Self {
            items: Arc::clone(&self.items),
            rejected: Arc::clone(&self.rejected),
            repairs: Arc::clone(&self.repairs),
            icons: Arc::clone(&self.icons),
            freshness: self.freshness,
        }
    }
}

impl<D> Default for OfferedList<D> {
    fn default() -> Self {
        Self {
            items: Arc::new([]),
            rejected: Arc::default(),
            repairs: Arc::default(),
            icons: Arc::default(),
            freshness: None,
        }
    }
}

impl<D: Definition> OfferedList<D> {
    fn read<T: Clone + Into<Arc<str>>>(
        &self,
        (server, requirement_inputs): (&ServerId, &RequirementInputs),
        definitions: &[T],
    ) -> Self {
        let known: HashMap<&str, &Arc<D>> = self
            .items
            .iter()
            .map(|item| (&**item.raw(), item))
            .collect();
        // Few tools of other nodes are called here: their schemas are compiled at the first call.
        let schemas = SchemaReader::new(!server.is_remote());
        let mut reader = OfferReader {
            reader: ItemReader {
                server,
                requirement_inputs,
                schemas,
            },
            known,
            own_names: HashSet::new(),
            visible_names: HashSet::new(),
            bytes: 0,
            items: Vec::new(),
            rejected: Rejections::default(),
            repairs: Vec::new(),
        };
        for definition in definitions {
            reader.add(definition.clone().into());
        }
        let mut icons = Vec::new();
        for item in &reader.items {
            DeclaredIcon::collect_from(item.raw(), &mut icons);
        }
        Self {
            items: reader.items.into(),
            icons: icons.into(),
            rejected: Arc::new(reader.rejected),
            repairs: reader.repairs.into(),
            freshness: None,
        }
    }
}

/// Parses a list within its bounds.
struct OfferReader<'a, D> {
    reader: ItemReader<'a>,
    known: HashMap<&'a str, &'a Arc<D>>,
    own_names: HashSet<Arc<str>>,
    visible_names: HashSet<Arc<str>>,
    bytes: usize,
    items: Vec<Arc<D>>,
    rejected: Rejections,
    repairs: Vec<String>,
}

impl<D: Definition> OfferReader<'_, D> {
    fn add(&mut self, definition: Arc<str>) {
        // An agent's stdio splits at newlines, which have no meaning between JSON tokens.
        let line = if definition.contains(['\n', '\r']) {
            definition.replace(['\n', '\r'], " ").into()
        } else {
            definition
        };
        let repaired = match repair(D::KIND, &line) {
            Ok(repaired) => repaired,
            Err(reason) => return self.reject(&line, reason),
        };
        let text = repaired.as_ref().map(|repaired| Arc::from(&*repaired.text));
        match self.parse(text.as_ref().unwrap_or(&line)) {
            Ok(item) => {
                self.bytes += line.len();
                let original = repaired.is_some().then_some(&line);
                self.items.push(D::with_original(item, original));
                if let Some(repaired) = repaired.filter(|_| self.repairs.len() < REJECTED_MAX) {
                    let item = item_label(&line);
                    self.repairs.push(format!(
                        "{} {item}: {}",
                        D::KIND.item_noun(),
                        repaired.slips
                    ));
                }
            }
            Err(reason) => self.reject(&line, reason),
        }
    }

    fn parse(&mut self, line: &Arc<str>) -> Result<Arc<D>, BadItem> {
        let most = match D::KIND {
            ListKind::Tools | ListKind::Prompts | ListKind::Resources => ITEMS_MAX,
            ListKind::Templates => TEMPLATES_MAX,
        };
        if self.items.len() >= most {
            return Err(BadItem::TooMany(most));
        }
        if self.bytes + line.len() > LIST_MAX {
            return Err(BadItem::ListTooLarge(LIST_MAX));
        }
        let item = match self.known.get(&**line) {
            Some(known) => Arc::clone(known),
            None => {
                let mut item = D::parse(&mut self.reader, line)?;
                let before = self.items.iter().rev().take(SHARING_WINDOW);
                before.for_each(|before| item.share_with(before));
                Arc::new(item)
            }
        };
        if self.own_names.contains(item.own_name())
            || self.visible_names.contains(item.merged_name())
        {
            return Err(BadItem::Duplicate);
        }
        self.own_names.insert(Arc::clone(item.own_name()));
        self.visible_names.insert(Arc::clone(item.merged_name()));
        Ok(item)
    }

    fn reject(&mut self, line: &str, reason: BadItem) {
        if self.rejected.reported.len() >= REJECTED_MAX {
            self.rejected.omitted += 1;
            return;
        }
        self.rejected.reported.push(RejectedItem {
            kind: D::KIND,
            item: item_label(line),
            reason,
        });
    }
}

/// The name in a definition, or the beginning of the text.
fn item_label(line: &str) -> String {
    let mut members = ["name", "uri", "uriTemplate"].into_iter();
    let own = members.find_map(|member| mgp_json::member(line, member));
    let text: String = own.unwrap_or(line).chars().take(80).collect();
    text.trim_matches('"').to_owned()
}
