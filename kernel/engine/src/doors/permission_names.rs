//! Names of permissions as people type them.

use std::collections::BTreeSet;

use mgp_protocol::mgp::permission::PermissionType;

use crate::doors::suggestions::{nearest, nearest_name};

/// A name that is no permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no permission {name:?}{}", match .suggestion {
    Some(near) => format!("; did you mean {near}?"),
    None => "; known are ".to_owned() + &.known.join(", "),
})]
pub struct UnknownPermission {
    name: String,
    suggestion: Option<String>,
    known: Vec<String>,
}

/// Resolves a typed permission of a server: a standard permission, or one of `known`, which are the server's own.
///
/// # Errors
/// [`UnknownPermission`].
pub fn parse(
    name: &str,
    known: &BTreeSet<PermissionType>,
) -> Result<Vec<PermissionType>, UnknownPermission> {
    let permissions = PermissionType::parse_all(name);
    let is_known =
        |it: &PermissionType| matches!(it, PermissionType::Standard(_)) || known.contains(it);
    if permissions.iter().all(is_known) {
        return Ok(permissions);
    }
    let mut all: BTreeSet<&str> = known.iter().map(PermissionType::as_str).collect();
    for name in PermissionType::standard_names() {
        all.insert(name);
    }
    Err(UnknownPermission {
        name: name.to_owned(),
        suggestion: nearest_name(name, all.iter().copied()).map(str::to_owned),
        known: all.into_iter().map(str::to_owned).collect(),
    })
}

/// The standard permission nearest to a configured name. A custom permission can have any other name.
#[must_use]
pub fn nearest_standard(name: &str) -> Option<&'static str> {
    let is_custom = |it: &PermissionType| matches!(it, PermissionType::Custom(_));
    let custom = PermissionType::parse_all(name).iter().any(is_custom);
    let near = nearest(name, PermissionType::standard_names());
    near.filter(|_| custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_permission_is_rejected_with_a_suggestion() {
        let own: BTreeSet<_> = PermissionType::parse_all("com.example.print")
            .into_iter()
            .collect();
        let resolved = |name| parse(name, &own).map_err(|why| why.to_string());
        assert_eq!(resolved("com.example.print").unwrap().len(), 1);
        assert_eq!(resolved("filesystem").unwrap().len(), 2);
        let why = resolved("netwrk.outbound").unwrap_err();
        assert!(why.contains("did you mean network.outbound?"), "{why}");
        let why = resolved("com.example.pint").unwrap_err();
        assert!(why.contains("did you mean com.example.print?"), "{why}");
        let why = resolved("everything").unwrap_err();
        assert!(why.contains("known are camera, code_execution"), "{why}");
    }

    #[test]
    fn a_custom_permission_is_accepted() {
        assert_eq!(
            nearest_standard("netwrk.outbound"),
            Some("network.outbound")
        );
        for name in ["network.outbound", "shell", "com.example.print"] {
            assert_eq!(nearest_standard(name), None);
        }
    }
}
