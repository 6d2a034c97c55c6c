//! Paths in code: a root and a chain of members, and the bindings of imports.

/// The longest chain of members that is resolved to its root. A longer one starts at a value.
pub(super) const MAX_CHAIN: usize = 16;

/// The root of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// An imported module.
    Module,
    /// A global name.
    Global,
    /// Any other value.
    Value,
}

/// A chain of members like `os.path.join`, and its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: Root,
    /// The imported module; empty for other roots.
    pub(super) module: String,
    /// The members; for [`Root::Global`] the first one is the name itself.
    pub(super) names: Vec<String>,
}

impl Path {
    /// The module and the members.
    pub(super) fn all_names(&self) -> Vec<String> {
        let module = self.module.split(['.', '/']).filter(|n| !n.is_empty());
        module
            .map(str::to_owned)
            .chain(self.names.iter().cloned())
            .collect()
    }
}

/// The module or member that an imported name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) module: String,
    /// The imported member; `None` for the module itself.
    pub(super) member: Option<String>,
}
