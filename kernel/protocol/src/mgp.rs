//! The words of MGP that the kernel says and reads.

pub mod access;
pub mod door;
pub mod kernel;
pub mod negotiation;
pub mod permission;
pub mod security;
pub mod servers;

/// Prefix of every MGP method (MGP §1.5).
pub const PREFIX: &str = "mgp/";

/// True when `name` means this method: `mgp/access/grant` itself, or one of the tool names
/// `mgp.access.grant` and `mgp_access_grant`.
#[must_use]
pub fn spells(method: &str, name: &str) -> bool {
    let spelled = |by: char| {
        let same = |(m, n): (char, char)| if m == '/' { n == by } else { m == n };
        method.len() == name.len() && method.chars().zip(name.chars()).all(same)
    };
    method.starts_with(PREFIX) && ['/', '.', '_'].into_iter().any(spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// one method, three spellings, none of them mixed.
    #[test]
    fn a_method_is_a_tool_under_two_more_names() {
        let method = "mgp/access/grant";
        for name in [method, "mgp.access.grant", "mgp_access_grant"] {
            assert!(spells(method, name), "{name}");
        }
        for name in [
            "mgp.access_grant",
            "mgp.access.grants",
            "access.grant",
            "mgpaccessgrant",
            "",
        ] {
            assert!(!spells(method, name), "{name}");
        }
        assert!(!spells("tools/call", "tools.call"));
    }
}
