//! Writers of logs, for tests.

use mgp_protocol::ids::{AgentId, GroupName, NodeId, ServerId};
use mgp_protocol::mgp::access::Permission;

use crate::node_key::{PublicKey, Signature};
use crate::policy::grants::{
    CausalContext, ClusterId, Grant, GrantChange, GrantId, GrantResource, LogChange, LogPosition,
    LogTip, MemberChange, MemberRole, Operation, OperationId, Revoke, SignedOperation, Subject,
};

/// The number of the recovery key.
pub(super) const RECOVERY: u8 = 99;

pub(super) fn key(n: u8) -> PublicKey {
    PublicKey([n; 32])
}

pub(super) fn node(n: u8) -> NodeId {
    key(n).node_id()
}

/// Writes one log.
#[derive(Clone)]
pub(super) struct LogWriter {
    pub(super) node_number: u8,
    cluster: Option<ClusterId>,
    pub(super) tip: LogTip,
    /// The operations of other logs that it knows.
    pub(super) context: CausalContext,
}

impl LogWriter {
    pub(super) fn new(node_number: u8, cluster: ClusterId) -> Self {
        Self {
            node_number,
            cluster: Some(cluster),
            tip: LogTip::EMPTY,
            context: CausalContext::default(),
        }
    }

    pub(super) fn write(&mut self, change: LogChange) -> SignedOperation {
        let signed = SignedOperation::with_signature(
            Operation {
                cluster: self.cluster,
                place: LogPosition {
                    issuer: node(self.node_number),
                    sequence: self.tip.next,
                },
                previous: self.tip.id,
                author: "operator".into(),
                told_at_ms: 0,
                change,
                context: self.context.clone(),
            },
            key(self.node_number),
            |_| Signature([0; 64]),
        );
        self.tip = LogTip {
            next: self.tip.next + 1,
            id: signed.encoded().id(),
        };
        signed
    }
}

/// Node 0 founds a cluster.
pub(super) fn found_cluster() -> (SignedOperation, LogWriter) {
    let mut writer = LogWriter {
        node_number: 0,
        cluster: None,
        tip: LogTip::EMPTY,
        context: CausalContext::default(),
    };
    let founding = writer.write(LogChange::Members(MemberChange::Found {
        key: key(0),
        recovery: key(RECOVERY),
        name: "first".into(),
    }));
    writer.cluster = Some(ClusterId(founding.encoded().id().0));
    (founding, writer)
}

pub(super) fn cluster_id() -> ClusterId {
    ClusterId(found_cluster().0.encoded().id().0)
}

pub(super) fn admit_change(n: u8, role: MemberRole) -> LogChange {
    let name = format!("node-{n}");
    LogChange::Members(MemberChange::Admit {
        key: key(n),
        role,
        name,
    })
}

pub(super) fn cut_change(n: u8, at: LogTip) -> LogChange {
    let (node, stays_as) = (node(n), None);
    LogChange::Members(MemberChange::Cut { node, at, stays_as })
}

pub(super) fn subject() -> Subject {
    Subject::Agent(node(1).agent(AgentId::new("a")))
}

pub(super) fn grant_change(id: u8, permission: Permission, replaces: &[u8]) -> LogChange {
    LogChange::Grants(GrantChange::Grant(Grant {
        id: GrantId([id; 16]),
        subject: subject(),
        resource: GrantResource::Server(node(0).server(ServerId::new("files"))),
        permission,
        not_after_ms: None,
        told_by: None,
        justification: None,
        replaces: replaces.iter().map(|id| GrantId([*id; 16])).collect(),
        when: None,
    }))
}

pub(super) fn allow_change(id: u8) -> LogChange {
    grant_change(id, Permission::Allow, &[])
}

pub(super) fn deny_change(id: u8) -> LogChange {
    grant_change(id, Permission::Deny, &[])
}

/// Changes a grant to one tool.
pub(super) fn for_tool(mut change: LogChange, tool: &str) -> LogChange {
    if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
        let on = node(0).server(ServerId::new("files"));
        grant.resource = GrantResource::Tool(on, tool.into());
    }
    change
}

/// Changes a grant to tools that match a pattern.
pub(super) fn for_tool_pattern(mut change: LogChange, pattern: &str) -> LogChange {
    if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
        let on = node(0).server(ServerId::new("files"));
        let tools = pattern.to_owned().try_into();
        grant.resource = GrantResource::Tools(on, tools.expect("a pattern"));
    }
    change
}

/// Adds a condition to a grant.
pub(super) fn on_condition(mut change: LogChange, when: &str) -> LogChange {
    if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
        grant.when = Some(when.to_owned());
    }
    change
}

/// Changes the subject of a grant.
pub(super) fn for_subject(mut change: LogChange, subject: Subject) -> LogChange {
    if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
        grant.subject = subject;
    }
    change
}

/// Makes the subject of a grant a member of a group.
pub(super) fn joining(mut change: LogChange, group: &str) -> LogChange {
    if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
        grant.resource = GrantResource::Group(GroupName::parse(group).expect("a name"));
    }
    change
}

/// Adds an expiry to a grant.
pub(super) fn expiring_at(mut change: LogChange, end_ms: u64) -> LogChange {
    if let LogChange::Grants(GrantChange::Grant(grant)) = &mut change {
        grant.not_after_ms = Some(end_ms);
    }
    change
}

pub(super) fn revoke_change(id: u8) -> LogChange {
    LogChange::Grants(GrantChange::Revoke(Revoke::Ids(vec![GrantId([id; 16])])))
}

pub(super) const START: OperationId = OperationId::START;
