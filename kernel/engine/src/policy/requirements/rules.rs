//! The operator's rules for a server's tools.

use std::collections::{BTreeMap, BTreeSet};

use mgp_protocol::mgp::discovery::security::RiskLevel;

use mgp_screening::code_safety::Level;

/// The rules for all tools of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRules {
    /// Whether arguments are validated at all.
    pub validate_arguments: bool,
    /// Validators beside those the server declares; `none` switches off those suggested by names.
    pub validators: Vec<String>,
    /// Folders that arguments may name, for `sandbox`; if empty, any but the system's own.
    pub roots: Vec<String>,
    /// The least strict policy for code.
    pub code_safety: Level,
    /// Whether a person must confirm dangerous calls.
    pub confirm_dangerous: bool,
    /// Whether arguments are held against the tool's schema.
    pub check_schema: bool,
    /// Categories that all its tools are in, such as `filesystem/read`.
    pub categories: Vec<String>,
    /// Longest text of a result that agents read at once, in bytes; 0 for any.
    pub result_max: usize,
    /// The tools that are offered, by the server's own names; all of them without a list.
    pub offered: Option<BTreeSet<String>>,
    /// Rules for single tools, by the server's own names.
    pub tools: BTreeMap<String, ToolRule>,
}

/// The rules for one tool; they win over all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRule {
    /// Its risk.
    pub risk_level: Option<RiskLevel>,
    /// Its validators, instead of all others.
    pub validators: Option<Vec<String>>,
    /// How its code is judged.
    pub code_safety: Option<Level>,
    /// Calling it twice does what calling it once does: a call that was lost may be made again.
    pub idempotent: bool,
    /// What agents are shown it as, instead of the server's own name.
    pub name: Option<String>,
    /// What agents read of it, instead of what its server says.
    pub description: Option<String>,
    /// It is there for nobody.
    pub hidden: bool,
}

impl ToolRule {
    /// Whether agents are shown another tool than the server has.
    #[must_use]
    pub fn has_presentation(&self) -> bool {
        self.name.is_some() || self.description.is_some() || self.hidden
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
            offered: None,
            tools: BTreeMap::new(),
        }
    }
}

impl ToolRules {
    /// The rules for one tool.
    #[must_use]
    pub fn for_tool(&self, tool: &str) -> Option<&ToolRule> {
        self.tools.get(tool)
    }

    /// Whether a tool is there for nobody.
    #[must_use]
    pub fn is_hidden(&self, tool: &str) -> bool {
        let listed = self.offered.as_ref().is_none_or(|only| only.contains(tool));
        !listed || self.for_tool(tool).is_some_and(|rule| rule.hidden)
    }
}
