//! The difference between two configurations of servers.

use std::collections::BTreeMap;

use mgp_protocol::ids::ServerId;

use crate::servers::spec::ServerSpec;

/// The difference between two sets of servers, each part ordered by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigDiff {
    pub(crate) added: Vec<ServerSpec>,
    pub(crate) removed: Vec<ServerId>,
    /// The new entries of changed servers.
    pub(crate) changed: Vec<ServerSpec>,
    pub(crate) unchanged: Vec<ServerId>,
}

impl ConfigDiff {
    /// Ids are unique within each set; of two with the same id the later counts.
    #[must_use]
    pub(crate) fn between_sets(old: &[ServerSpec], new: &[ServerSpec]) -> Self {
        let (old, new) = (index_by_id(old), index_by_id(new));
        let mut diff = Self::default();
        for (id, spec) in &new {
            match old.get(id) {
                None => diff.added.push((*spec).clone()),
                Some(before) if before == spec => diff.unchanged.push((*id).clone()),
                Some(_) => diff.changed.push((*spec).clone()),
            }
        }
        let removed = old.keys().filter(|id| !new.contains_key(*id));
        diff.removed = removed.map(|id| (*id).clone()).collect();
        diff
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

fn index_by_id(specs: &[ServerSpec]) -> BTreeMap<&ServerId, &ServerSpec> {
    specs.iter().map(|spec| (&spec.id, spec)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::permissions::PermissionRules;
    use crate::policy::pins::PinRules;
    use crate::servers::spec::{
        CallbackAttribution, MgpConfig, ReplicaMode, RestartConfig, ServerInstances, ServerLimits,
        ServerTransport, StartMode, UrlProtocol, default_client_extensions,
    };

    pub(in crate::servers::tree_plan) fn spec(id: &str, url: &str) -> ServerSpec {
        ServerSpec {
            id: ServerId::new(id),
            transport: ServerTransport::Http {
                url: url.into(),
                headers: BTreeMap::new(),
                protocol: UrlProtocol::default(),
            },
            start: StartMode::Kernel,
            start_after: Vec::new(),
            rolling: false,
            replica: ReplicaMode::Standalone,
            restart: RestartConfig::default(),
            limits: ServerLimits::default(),
            resources: crate::servers::resources::ResourceLimits::default(),
            default_policy: None,
            callback_attribution: CallbackAttribution::default(),
            instances: ServerInstances::default(),
            mgp: MgpConfig::default(),
            mcpl: true,
            client_extensions: default_client_extensions(),
            tools: Arc::default(),
            permissions: PermissionRules::default(),
            pin: PinRules::default(),
            sandbox: crate::servers::sandbox::SandboxConfig::default(),
            login: crate::servers::login::LoginConfig::disabled(),
            pass_headers: Vec::new(),
            agent_values: BTreeMap::new(),
        }
    }

    #[test]
    fn unchanged_servers_are_not_touched() {
        let old = [
            spec("same", "http://1"),
            spec("edited", "http://2"),
            spec("gone", "http://3"),
        ];
        let new = [
            spec("new", "http://4"),
            spec("edited", "http://5"),
            spec("same", "http://1"),
        ];
        let diff = ConfigDiff::between_sets(&old, &new);
        assert_eq!(diff.added, [spec("new", "http://4")]);
        assert_eq!(diff.removed, [ServerId::new("gone")]);
        assert_eq!(diff.changed, [spec("edited", "http://5")]);
        assert_eq!(diff.unchanged, [ServerId::new("same")]);
        assert!(!diff.is_empty());
    }

    #[test]
    fn the_same_servers_in_another_order_are_no_change() {
        let (a, b) = (spec("a", "http://1"), spec("b", "http://2"));
        assert!(ConfigDiff::between_sets(&[a.clone(), b.clone()], &[b, a]).is_empty());
    }
}
