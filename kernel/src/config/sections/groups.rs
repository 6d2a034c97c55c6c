//! `[groups.*]`: limits that the members of a group share.

use std::collections::BTreeMap;

use mgp_engine::calls::rate_limits::groups::GroupLimits;
use mgp_engine::policy::access::CONFIGURED_GROUPS_MAX;
use mgp_protocol::ids::GroupName;

use super::limits::CALLS_MAX;
use crate::config::parsing::Section;

/// More bytes than a kernel can relay in a day.
const BYTES_MAX: u64 = 1 << 60;

/// Groups with limits.
pub(crate) type GroupsConfig = BTreeMap<GroupName, GroupLimits>;

/// Reads all `[groups.NAME]`.
pub(crate) fn read_groups(root: &mut Section<'_, '_, '_>, groups: &mut GroupsConfig) {
    let read = root.named_tables("groups", GroupName::parse, |section| {
        let mut limits = GroupLimits::default();
        let calls = 0..=CALLS_MAX;
        section.count(
            "calls_per_minute",
            calls.clone(),
            &mut limits.calls_per_minute,
        );
        section.count("calls_per_day", calls, &mut limits.calls_per_day);
        section.count("bytes_per_day", 0..=BYTES_MAX, &mut limits.bytes_per_day);
        limits
    });
    groups.extend(read);
    if groups.len() > CONFIGURED_GROUPS_MAX {
        let span = root.span("groups").unwrap_or_default();
        root.reject(
            span,
            format!("[groups] has at most {CONFIGURED_GROUPS_MAX} groups"),
        );
    }
}
