//! `subscriptions/*`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

super::methods! {
    "subscriptions/listen" => Listen,
    "notifications/subscriptions/acknowledged" => Acknowledged<'_>,
}

/// `subscriptions/listen`: opens a stream of the listed notifications.
#[derive(Debug, Deserialize)]
pub struct Listen {
    /// The wanted notifications; nothing else is sent.
    pub notifications: Filter,
}

/// `notifications/subscriptions/acknowledged`: the first message of a subscription.
#[derive(Debug, Deserialize)]
pub struct Acknowledged<'a> {
    /// The part of the request that the server supports.
    pub notifications: Filter,
    /// Contains the subscription's id.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

/// Kinds of notifications, each opt-in. False and empty members are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    /// `notifications/tools/list_changed`.
    #[serde(skip_serializing_if = "is_off")]
    pub tools_list_changed: bool,
    /// `notifications/prompts/list_changed`.
    #[serde(skip_serializing_if = "is_off")]
    pub prompts_list_changed: bool,
    /// `notifications/resources/list_changed`.
    #[serde(skip_serializing_if = "is_off")]
    pub resources_list_changed: bool,
    /// `notifications/resources/updated` for these URIs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
    /// `notifications/tasks` for these tasks (tasks extension).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<String>,
}

fn is_off(wanted: &bool) -> bool {
    !wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_contains_only_wanted_kinds() {
        let text = r#"{"toolsListChanged":true,"resourceSubscriptions":["a://b"],"taskIds":["t"]}"#;
        let filter: Filter = serde_json::from_str(text).unwrap();
        assert!(filter.tools_list_changed && !filter.prompts_list_changed);
        assert_eq!(serde_json::to_string(&filter).unwrap(), text);
        assert_eq!(serde_json::to_string(&Filter::default()).unwrap(), "{}");
    }
}
