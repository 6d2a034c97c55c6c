//! The operator's rules for a server's tools.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::mgp::discovery::security::RiskLevel;

use mgp_screening::code_safety::Level;

/// The rules for all tools of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRules {
    /// Whether arguments are validated at all.
    pub validate_arguments: bool,
    /// Validators besides those the server declares; `none` disables those suggested by names.
    pub validators: Vec<String>,
    /// Folders that arguments may name, for `sandbox`; if empty, any but system folders.
    pub roots: Vec<String>,
    /// The least strict policy for code.
    pub code_safety: Level,
    /// Whether a person must confirm dangerous calls.
    pub confirm_dangerous: bool,
    /// Whether arguments are validated against the tool's schema.
    pub check_schema: bool,
    /// Categories that all its tools are in, such as `filesystem/read`.
    pub categories: Vec<String>,
    /// Longest text of a result that is returned at once, in bytes; 0 for no limit.
    pub result_max: usize,
    /// Whether tools that are only for apps exist in merged views, too.
    pub merged_app_tools: bool,
    /// Methods of the server's extensions that exist in merged views, too.
    pub merged_methods: BTreeSet<String>,
    /// The offered tools, by the server's own names; `None` offers all of them.
    pub offered: Option<BTreeSet<String>>,
    /// Rules for single tools, by the server's own names.
    pub tools: BTreeMap<String, ToolRule>,
}

/// The rules for one tool; they override all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRule {
    /// Its risk.
    pub risk_level: Option<RiskLevel>,
    /// Its validators, instead of all others.
    pub validators: Option<Vec<String>>,
    /// How its code is checked.
    pub code_safety: Option<Level>,
    /// It is idempotent: a lost call may be retried.
    pub idempotent: bool,
    /// The name that agents see, instead of the server's own.
    pub name: Option<String>,
    /// The description that agents see, instead of the server's own.
    pub description: Option<String>,
    /// It is hidden from everyone.
    pub hidden: bool,
}

impl ToolRule {
    /// Whether agents see another name or description than the server's own.
    #[must_use]
    pub(crate) fn has_presentation(&self) -> bool {
        self.name.is_some() || self.description.is_some()
    }
}

impl Default for ToolRules {
    fn default() -> Self {
        Self {
            validate_arguments: true,
            validators: Vec::new(),
            roots: Vec::new(),
            code_safety: Level::Unrestricted,
            confirm_dangerous: true,
            check_schema: true,
            categories: Vec::new(),
            result_max: 0,
            merged_app_tools: false,
            merged_methods: BTreeSet::new(),
            offered: None,
            tools: BTreeMap::new(),
        }
    }
}

impl ToolRules {
    /// The rules for one tool.
    #[must_use]
    pub(crate) fn for_tool(&self, tool: &str) -> Option<&ToolRule> {
        self.tools.get(tool)
    }

    /// Whether a tool is hidden from everyone.
    #[must_use]
    pub(crate) fn is_hidden(&self, tool: &str) -> bool {
        let listed = self.offered.as_ref().is_none_or(|only| only.contains(tool));
        !listed || self.for_tool(tool).is_some_and(|rule| rule.hidden)
    }
}
