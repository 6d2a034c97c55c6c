//! What code names: a root and the members taken of it, and what an import binds.

/// Members in a row that are followed to where they begin. What goes on from there is a value's.
pub(super) const MAX_CHAIN: usize = 16;

/// Where a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    /// At an imported module.
    Module,
    /// At a name.
    Global,
    /// At any other value.
    Value,
}

/// `os.path.join`: members in a row, and where they begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: Root,
    /// As it is imported; empty when it begins elsewhere.
    pub(super) module: String,
    /// Behind it; the first is the name itself for [`Root::Global`].
    pub(super) names: Vec<String>,
}

impl Path {
    /// All names in a row.
    pub(super) fn all_names(&self) -> Vec<String> {
        let module = self.module.split(['.', '/']).filter(|n| !n.is_empty());
        module
            .map(str::to_owned)
            .chain(self.names.iter().cloned())
            .collect()
    }
}

/// What an imported name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) module: String,
    /// What was taken from it; `None`: itself.
    pub(super) member: Option<String>,
}
