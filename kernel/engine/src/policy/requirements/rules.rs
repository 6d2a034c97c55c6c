//! What the operator says of a server's tools.

use std::collections::BTreeMap;

use mgp_protocol::mgp::security::RiskLevel;

use mgp_screening::code_safety::Level;

/// Of all tools of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRules {
    /// Arguments are looked at at all.
    pub validates: bool,
    /// Validators beside those its server declares; `none` switches off those guessed by name.
    pub validators: Vec<String>,
    /// Folders that arguments may name, for `sandbox`; with none, any but the system's own.
    pub roots: Vec<String>,
    /// Code is judged no looser than this.
    pub code_safety: Level,
    /// A person is asked before dangerous calls.
    pub confirms: bool,
    /// Where all tools stand in the order of things, the general first: `filesystem/read`.
    pub categories: Vec<String>,
    /// Of single tools, by the names their server gives them.
    pub tools: BTreeMap<String, ToolRule>,
}

/// Of one tool: the last word, where it says something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRule {
    /// Its risk.
    pub risk_level: Option<RiskLevel>,
    /// Its validators, instead of all others.
    pub validators: Option<Vec<String>>,
    /// How its code is judged.
    pub code_safety: Option<Level>,
}

impl Default for ToolRules {
    fn default() -> Self {
        Self {
            validates: true,
            validators: Vec::new(),
            roots: Vec::new(),
            code_safety: Level::Unrestricted,
            confirms: true,
            categories: Vec::new(),
            tools: BTreeMap::new(),
        }
    }
}

impl ToolRules {
    /// What is said of one tool.
    #[must_use]
    pub fn of(&self, tool: &str) -> Option<&ToolRule> {
        self.tools.get(tool)
    }
}
