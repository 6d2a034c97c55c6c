//! What the versions differ in, as far as a call shows it.

use mgp_tests::harness::envelope::MODERN;

/// One version of the protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    /// Its name.
    pub(crate) name: &'static str,
    /// Forms for the user.
    pub(crate) elicitation: bool,
    /// Results as JSON beside their text.
    pub(crate) structured: bool,
    /// How it says that a resource is unknown.
    pub(crate) not_found: i64,
}

/// All of them, oldest first.
pub(crate) const VERSIONS: [Version; 5] = [
    //      name          forms  structured  unknown resource
    version("2024-11-05", false, false, -32002),
    version("2025-03-26", false, false, -32002),
    version("2025-06-18", true, true, -32002),
    version("2025-11-25", true, true, -32002),
    version(MODERN, true, true, -32602),
];

const fn version(
    name: &'static str,
    elicitation: bool,
    structured: bool,
    not_found: i64,
) -> Version {
    Version {
        name,
        elicitation,
        structured,
        not_found,
    }
}

impl Version {
    /// True of the one without a handshake.
    pub(crate) fn is_modern(&self) -> bool {
        self.name == MODERN
    }

    /// What a client of this version can say it can do, all of it.
    pub(crate) fn client(&self) -> &'static str {
        match (self.is_modern(), self.elicitation) {
            (true, _) => r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#,
            (false, true) => r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#,
            (false, false) => r#"{"roots":{"listChanged":true},"sampling":{}}"#,
        }
    }

    /// The flags of a scripted server that speaks this version and no other.
    pub(crate) fn server(&self) -> Vec<&'static str> {
        if self.is_modern() {
            vec!["--era", "modern"]
        } else {
            vec!["--era", "legacy", "--versions", self.name]
        }
    }
}
