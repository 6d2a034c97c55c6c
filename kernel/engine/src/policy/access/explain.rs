//! Explains which rule decides. It reads the grants, not the table made from them, so that it can also list rules
//! that do not apply, with the reason.

use mgp_protocol::ids::{AgentId, GroupName, NodeId, NodeServer, ServerId};
use mgp_protocol::mgp::access::{
    self, DefaultPolicy, EntryType, ExplainedCondition, Explanation, Permission, Source,
};

use super::decision::ForeignDenial;
use super::{ClaimedGroups, DefaultPolicies, EntryEffect, Principal, display_author};
use crate::policy::grants::{Authority, GrantResource, GrantStatus, Grants, LoggedGrant, Subject};
use crate::timestamps::render_rfc3339_ms;

/// After the name of a group: that of the cluster.
pub(super) const CLUSTER_GROUP: &str = "@*";

/// Most entries in one explanation; further ones are only counted.
const ENTRIES_MAX: usize = 100;

/// Explains what [`super::GrantTable::decide`] decides on a table of the same grants.
#[must_use]
pub fn explain(
    grants: &Grants,
    authority: &Authority,
    defaults: &DefaultPolicies,
    principal: &Principal,
    server: &ServerId,
    tool: Option<&str>,
    now_ms: u64,
) -> Explanation {
    let Some(agent) = principal.agent() else {
        return Explanation {
            permission: Permission::Allow,
            source: Source::Operator,
            rule: format!(
                "{} is the operator, to whom nothing is closed",
                principal.name()
            ),
            considered: Vec::new(),
            conditions: Vec::new(),
            notes: Vec::new(),
            waits: None,
        };
    };
    let subject = Subject::Agent(authority.local_node().agent(agent.clone()));
    let on = authority.local_node().server(server.clone());
    let of_tool = tool.map(|tool| GrantResource::Tool(on.clone(), tool.to_owned()));
    let levels = [
        (Source::ToolGrant, of_tool),
        (Source::ServerGrant, Some(GrantResource::Server(on.clone()))),
    ];
    let judge = |granted| ExplainedGrant {
        granted,
        status: grants.status(granted, authority, now_ms),
        is_closing: grants.is_closing(granted, authority, now_ms),
    };
    let joined = local_memberships(grants, authority, (principal, &subject), defaults, now_ms);
    let at = |subject: &Subject, resource: &GrantResource| -> Vec<ExplainedGrant<'_>> {
        let found = grants.for_subject(subject);
        let found = found.filter(|granted| granted.grant.resource == *resource);
        found.map(judge).collect()
    };
    let levels = levels.into_iter().filter_map(|(source, resource)| {
        let resource = resource?;
        let found = at(&subject, &resource);
        let groups = joined.iter().flat_map(|(group, effect, _)| {
            let found = at(
                &Subject::local_group(group, authority.local_node()),
                &resource,
            );
            found.into_iter().filter_map(|it| it.for_member(*effect))
        });
        let groups: Vec<_> = groups.collect();
        let groups = (!groups.is_empty()).then(|| (source, resource.clone(), groups));
        Some([(source, resource, found)].into_iter().chain(groups))
    });
    let name = |node: NodeId| node.short_id();
    let (mut considered, decided) = explain_levels(levels.flatten(), tool, &name);
    let sentences = joined.iter().map(|(.., sentence)| sentence.clone());
    considered = sentences.chain(considered).collect();
    let default = describe_policy(defaults, server);
    considered.push(default.1.clone());
    let decided = decided.unwrap_or_else(|| DecidingRule {
        permission: default.0.permission(),
        source: Source::DefaultPolicy,
        rule: default.1,
        conditions: Vec::new(),
    });
    Explanation {
        permission: decided.permission,
        source: decided.source,
        rule: decided.rule,
        considered: truncate_lines(considered),
        conditions: decided.conditions,
        notes: Vec::new(),
        waits: None,
    }
}

/// The groups of an agent of this node, each with what of its entries counts, and why it is in it.
fn local_memberships(
    grants: &Grants,
    authority: &Authority,
    (principal, subject): (&Principal, &Subject),
    defaults: &DefaultPolicies,
    now_ms: u64,
) -> Vec<(GroupName, EntryEffect, String)> {
    let who = principal.name();
    let entered = grants.for_subject(subject).filter_map(|granted| {
        let group = granted.grant.joined_group()?;
        let status = grants.status(granted, authority, now_ms);
        let effect = if status == GrantStatus::InForce {
            EntryEffect::Whole
        } else if grants.is_closing(granted, authority, now_ms) {
            EntryEffect::Closing
        } else {
            return None;
        };
        Some((group.clone(), effect, describe_membership(granted, who)))
    });
    let claimed = principal.claimed_groups().into_iter();
    let claimed = claimed.flat_map(ClaimedGroups::iter);
    let claimed = claimed.filter_map(|(group, effect)| {
        let group = group.group()?;
        let narrowed = match effect {
            EntryEffect::Whole => "",
            EntryEffect::Closing => ", without the scope that its grants need",
        };
        let sentence = format!("{who} is in {group}: its token says so{narrowed}");
        Some((group, *effect, sentence))
    });
    let mut all: Vec<_> = entered.chain(claimed).collect();
    let is_in_none = all.is_empty() && !subject.is_group();
    if let Some((group, effect)) = defaults.group.as_ref().filter(|_| is_in_none)
        && let Some(group) = group.group()
    {
        let sentence = format!("{who} is in {group}: the group of agents that are in no other");
        all.push((group, *effect, sentence));
    }
    all
}

/// Describes what put an agent into a group.
pub(crate) fn describe_membership(granted: &LoggedGrant, who: &str) -> String {
    let group = granted.grant.joined_group();
    let group = group.map(ToString::to_string).unwrap_or_default();
    let (by, at) = (
        display_author(granted),
        render_rfc3339_ms(granted.issued_at_ms),
    );
    format!(
        "{who} is in {group}: entry {} of {by} at {at}",
        granted.grant.id
    )
}

/// Explains this node's own denial for one of its agents and another node's server; `None` where it denies nothing.
/// `name` resolves the names of nodes.
#[must_use]
pub fn explain_local_denial(
    grants: &Grants,
    authority: &Authority,
    defaults: &DefaultPolicies,
    agent: &AgentId,
    (on, tool): (&NodeServer, Option<&str>),
    now_ms: u64,
    name: &dyn Fn(NodeId) -> String,
) -> Option<Explanation> {
    let here = authority.local_node();
    let subject = Subject::Agent(here.agent(agent.clone()));
    let who = Principal::Agent(agent.clone());
    let joined = local_memberships(grants, authority, (&who, &subject), defaults, now_ms);
    let groups = joined.iter();
    let groups = groups.map(|(group, ..)| Subject::local_group(group, here));
    let subjects: Vec<Subject> = groups.chain([subject.clone()]).collect();
    let all = subjects.iter().flat_map(|it| grants.for_subject(it));
    let denials = all.filter(|granted| {
        granted.grant.permission == Permission::Deny
            && granted.grant.resource.specificity(on, tool).is_some()
            && grants.status(granted, authority, now_ms) == GrantStatus::InForce
    });
    let closest = denials.min_by_key(|granted| granted.grant.resource.specificity(on, tool))?;
    let source = match closest.grant.resource {
        GrantResource::Tool(..) | GrantResource::Tools(..) => Source::ToolGrant,
        GrantResource::Server(_) | GrantResource::Permission(_) | GrantResource::Group(_) => {
            Source::ServerGrant
        }
    };
    let rule = format!(
        "this node denies it: {}",
        describe_entry(closest, &GrantStatus::InForce, name)
    );
    Some(Explanation {
        permission: Permission::Deny,
        source,
        considered: vec![rule.clone()],
        conditions: Vec::new(),
        rule,
        notes: Vec::new(),
        waits: None,
    })
}

/// A grant, and what of it counts.
#[derive(Debug)]
pub(crate) struct ExplainedGrant<'a> {
    pub(crate) granted: &'a LoggedGrant,
    pub(crate) status: GrantStatus,
    /// It closes what its condition does not allow.
    pub(crate) is_closing: bool,
}

/// The entries for one resource.
pub(crate) type LevelEntries<'a> = (Source, GrantResource, Vec<ExplainedGrant<'a>>);

/// What decides.
struct DecidingRule {
    permission: Permission,
    source: Source,
    rule: String,
    conditions: Vec<ExplainedCondition>,
}

impl ExplainedGrant<'_> {
    fn is_in_force(&self) -> bool {
        self.status == GrantStatus::InForce
    }

    fn is_conditional(&self) -> bool {
        self.granted.grant.is_conditional()
    }

    /// What of an entry of a group counts for a member.
    pub(crate) fn for_member(self, effect: EntryEffect) -> Option<Self> {
        match (effect, self.granted.grant.permission) {
            (EntryEffect::Whole, _) | (EntryEffect::Closing, Permission::Deny) => Some(self),
            (EntryEffect::Closing, Permission::Allow) => self.is_closing.then_some(Self {
                status: GrantStatus::Pending,
                ..self
            }),
        }
    }
}

/// Describes all entries by level, and returns what decides.
fn explain_levels<'a>(
    levels: impl Iterator<Item = LevelEntries<'a>>,
    tool: Option<&str>,
    name: &dyn Fn(NodeId) -> String,
) -> (Vec<String>, Option<DecidingRule>) {
    let mut considered = Vec::new();
    let mut decided = None;
    for (source, resource, mut found) in levels {
        found.sort_by_key(sort_key);
        if found.is_empty() {
            considered.push(format!("no entry for {}", describe_resource(&resource)));
        }
        let sentences = found.iter().map(|it| {
            let mut sentence = describe_entry(it.granted, &it.status, name);
            if it.is_closing && !it.is_in_force() {
                sentence += "; what it does not allow is closed meanwhile";
            }
            sentence
        });
        let sentences: Vec<String> = sentences.collect();
        if decided.is_none() {
            decided = find_deciding_rule(source, &found, &sentences, tool);
        }
        considered.extend(sentences);
    }
    (considered, decided)
}

/// What the entries of one level decide. They are sorted, each with its sentence.
fn find_deciding_rule(
    source: Source,
    found: &[ExplainedGrant<'_>],
    sentences: &[String],
    tool: Option<&str>,
) -> Option<DecidingRule> {
    let mut all = found.iter().zip(sentences);
    let (first, sentence) = all.find(|(it, _)| it.is_in_force() || it.is_closing)?;
    let mut rule = sentence.clone();
    if !first.is_conditional() {
        return Some(DecidingRule {
            permission: first.granted.grant.permission,
            source,
            rule,
            conditions: Vec::new(),
        });
    }
    let in_force = found.iter().filter(|it| it.is_in_force());
    let conditions = in_force.filter_map(|it| {
        let when = it.granted.grant.when.clone()?;
        let grant_id = it.granted.grant.id.to_string();
        Some(ExplainedCondition {
            grant_id,
            when,
            holds: None,
            failure: None,
        })
    });
    if tool.is_none() {
        rule += "; a condition is about calls of tools, and opens nothing else";
    }
    Some(DecidingRule {
        permission: Permission::Deny,
        source,
        rule,
        conditions: conditions.filter(|_| tool.is_some()).collect(),
    })
}

/// The same for an agent of another node, whose entries are in the logs of the cluster. `hindrance` is what denies
/// access in spite of them; `name` resolves the names of nodes.
#[must_use]
pub(crate) fn explain_foreign<'a>(
    levels: impl Iterator<Item = LevelEntries<'a>>,
    tool: Option<&str>,
    hindrance: Option<String>,
    name: &dyn Fn(NodeId) -> String,
) -> Explanation {
    let (mut considered, decided) = explain_levels(levels, tool, name);
    considered.extend(hindrance.clone());
    let denied = |rule| DecidingRule {
        permission: Permission::Deny,
        source: Source::DefaultPolicy,
        rule,
        conditions: Vec::new(),
    };
    let opens = |it: &DecidingRule| it.permission == Permission::Allow || !it.conditions.is_empty();
    let decided = match (decided, hindrance) {
        (Some(decided), Some(why)) if opens(&decided) => denied(why),
        (Some(decided), _) => decided,
        (None, _) => {
            let why = ForeignDenial::NotGranted.to_string();
            considered.push(why.clone());
            denied(why)
        }
    };
    Explanation {
        permission: decided.permission,
        source: decided.source,
        rule: decided.rule,
        considered: truncate_lines(considered),
        conditions: decided.conditions,
        notes: Vec::new(),
        waits: None,
    }
}

/// Sorts entries in force first, then those in conflict, deny before allow, without a condition before with one, longer
/// validity first.
fn sort_key(it: &ExplainedGrant<'_>) -> impl Ord + use<> {
    let grant = &it.granted.grant;
    (
        !it.is_in_force(),
        !matches!(it.status, GrantStatus::InConflict { .. }),
        grant.permission == Permission::Allow,
        it.is_conditional(),
        std::cmp::Reverse(grant.not_after_ms.unwrap_or(u64::MAX)),
        grant.id,
    )
}

fn truncate_lines(mut all: Vec<String>) -> Vec<String> {
    if all.len() > ENTRIES_MAX {
        let more = all.len() - ENTRIES_MAX;
        let policy = all.pop();
        all.truncate(ENTRIES_MAX - 1);
        all.push(format!("and {more} more entries"));
        all.extend(policy);
    }
    all
}

fn describe_policy(defaults: &DefaultPolicies, server: &ServerId) -> (DefaultPolicy, String) {
    let policy = defaults.for_server(server);
    let whose = if defaults.servers.contains_key(server) {
        format!("server {server}")
    } else {
        "the kernel".to_owned()
    };
    let words = match policy {
        DefaultPolicy::OptIn => "opt-in: denied unless granted",
        DefaultPolicy::OptOut => "opt-out: allowed unless denied",
    };
    (policy, format!("the default policy of {whose} is {words}"))
}

fn describe_resource(resource: &GrantResource) -> String {
    match resource {
        GrantResource::Server(on) => format!("all of server {}", on.server),
        GrantResource::Tool(on, tool) => format!("tool {}:{tool}", on.server),
        GrantResource::Tools(on, tools) => format!("tools {}:{tools}", on.server),
        GrantResource::Permission(permission) => format!("permission {permission}"),
        GrantResource::Group(group) => group.to_string(),
    }
}

/// Describes which revoke overrides a grant, and what to do.
#[must_use]
pub(crate) fn describe_conflict(
    force: &GrantStatus,
    name: impl Fn(NodeId) -> String,
) -> Option<String> {
    match force {
        GrantStatus::InConflict { revoke, at_ms } => Some(format!(
            "in conflict with the revoke of {} at {}: grant again to allow it",
            name(revoke.issuer),
            render_rfc3339_ms(*at_ms)
        )),
        GrantStatus::InForce
        | GrantStatus::Expired(_)
        | GrantStatus::ExpiredEarly(_)
        | GrantStatus::Revoked(_)
        | GrantStatus::NotAuthorised
        | GrantStatus::Quarantined
        | GrantStatus::Pending
        | GrantStatus::UnknownOperation => None,
    }
}

fn describe_entry(
    granted: &LoggedGrant,
    force: &GrantStatus,
    name: &dyn Fn(NodeId) -> String,
) -> String {
    let verb = match granted.grant.permission {
        Permission::Allow => "allows",
        Permission::Deny => "denies",
    };
    let what = describe_resource(&granted.grant.resource);
    let to = match &granted.grant.subject {
        group if group.is_group() => {
            let group = group.group().map(|group| format!(" to {group}"));
            group.unwrap_or_default()
        }
        Subject::AgentsAt(node) => format!(" to every agent of {}", name(*node)),
        Subject::AgentEverywhere(agent) => format!(" to {agent} of every node"),
        Subject::Agent(_) | Subject::Server(_) => String::new(),
    };
    let (by, at) = (
        display_author(granted),
        render_rfc3339_ms(granted.issued_at_ms),
    );
    let when = granted.grant.when.as_deref();
    let when = when.map(|when| format!(" when {when}")).unwrap_or_default();
    let why = granted.grant.justification.as_deref();
    let why = why.map(|why| format!(" ({why:?})")).unwrap_or_default();
    let until = granted.grant.not_after_ms;
    let state = match force {
        GrantStatus::InForce => match until {
            Some(end) => format!("in force until {}", render_rfc3339_ms(end)),
            None => "in force".to_owned(),
        },
        GrantStatus::Expired(end) => {
            format!("does not count: it expired at {}", render_rfc3339_ms(*end))
        }
        GrantStatus::ExpiredEarly(end) => format!(
            "does not count: it expires at {}, and that time has come by the clock of another admin node (`mgp cluster status`)",
            render_rfc3339_ms(*end)
        ),
        GrantStatus::Revoked(place) => {
            format!(
                "does not count: it was taken back by node {} (operation {})",
                place.issuer.short_id(),
                place.sequence
            )
        }
        GrantStatus::InConflict { .. } => {
            let why = describe_conflict(force, name).unwrap_or_default();
            format!("does not count: {why}")
        }
        GrantStatus::NotAuthorised => "does not count: the node that issued it may not".to_owned(),
        GrantStatus::Pending => {
            "does not count yet: what its node wrote before it is missing".to_owned()
        }
        GrantStatus::UnknownOperation => {
            "does not count: its node wrote something that this version does not understand"
                .to_owned()
        }
        GrantStatus::Quarantined => {
            "does not count: the log of the node that issued it is forked".to_owned()
        }
    };
    format!(
        "grant {} of {by} at {at} {verb} {what}{to}{when}{why}: {state}",
        granted.grant.id
    )
}

/// The entries in force for `mgp/access/list`, of everyone or of one agent, everywhere or on one server, sorted by
/// agent. `name` resolves the names of other nodes.
#[must_use]
pub fn list(
    grants: &Grants,
    authority: &Authority,
    request: &access::List,
    now_ms: u64,
    name: impl Fn(NodeId) -> String,
) -> Vec<access::Entry> {
    let here = authority.local_node();
    let counts =
        |granted: &&LoggedGrant| grants.status(granted, authority, now_ms) == GrantStatus::InForce;
    let shown = grants.iter().filter(counts).filter_map(|granted| {
        let entry = to_entry(granted)?;
        let on = granted.grant.resource.server();
        Some(match on.filter(|on| on.node != here) {
            None => entry,
            Some(on) => access::Entry {
                server_id: ServerId::new_remote(&name(on.node), &on.server).to_string(),
                ..entry
            },
        })
    });
    let wanted = |entry: &access::Entry| {
        request.lists(entry.entry_type)
            && request
                .agent_id
                .as_ref()
                .is_none_or(|agent| *agent == entry.agent_id)
            && request
                .server_id
                .as_ref()
                .is_none_or(|server| *server == entry.server_id)
    };
    shown.filter(wanted).collect()
}

/// Lists entries of a cluster's logs, each with its conflict if any, and with the names of the cluster's other nodes
/// at `here`.
pub fn list_cluster<'a>(
    granted: impl Iterator<Item = (&'a LoggedGrant, Option<String>)>,
    here: NodeId,
    name: impl Fn(NodeId) -> String,
) -> Vec<access::Entry> {
    let entries = granted.filter_map(|(granted, conflict)| {
        let mut entry = to_entry(granted)?;
        entry.conflict = conflict;
        match &granted.grant.subject {
            Subject::Agent(agent) if agent.node != here => {
                entry.agent_id = format!("{}@{}", agent.agent, name(agent.node));
            }
            Subject::AgentsAt(node) if *node == here => {
                AgentId::ALL.clone_into(&mut entry.agent_id)
            }
            Subject::AgentsAt(node) => {
                entry.agent_id = format!("{}@{}", AgentId::ALL, name(*node));
            }
            Subject::Agent(_) | Subject::AgentEverywhere(_) | Subject::Server(_) => {}
        }
        if granted.grant.joined_group().is_some() {
            entry.server_id += CLUSTER_GROUP;
        }
        if let Some(on) = granted.grant.resource.server()
            && on.node != here
        {
            let server = ServerId::new_remote(&name(on.node), &on.server);
            entry.server_id = server.to_string();
        }
        Some(entry)
    });
    entries.collect()
}

fn to_entry(granted: &LoggedGrant) -> Option<access::Entry> {
    let agent = match &granted.grant.subject {
        Subject::Agent(agent) => agent.agent.clone(),
        pattern @ (Subject::AgentsAt(_) | Subject::AgentEverywhere(_)) => pattern.agent_id()?,
        Subject::Server(_) => return None,
    };
    let of = |on: &NodeServer| on.server.to_string();
    let (entry_type, server_id, tool) = match &granted.grant.resource {
        GrantResource::Server(on) => (EntryType::ServerGrant, of(on), None),
        GrantResource::Tool(on, tool) => (EntryType::ToolGrant, of(on), Some(tool.clone())),
        GrantResource::Tools(on, tools) => (EntryType::ToolGrant, of(on), Some(tools.to_string())),
        GrantResource::Group(group) => (EntryType::GroupMember, group.to_string(), None),
        GrantResource::Permission(_) => return None,
    };
    Some(access::Entry {
        grant_id: granted.grant.id.to_string(),
        entry_type,
        agent_id: agent.to_string(),
        server_id,
        tool_name: tool,
        permission: granted.grant.permission,
        granted_by: display_author(granted).to_owned(),
        granted_at: render_rfc3339_ms(granted.issued_at_ms),
        expires_at: granted.grant.not_after_ms.map(render_rfc3339_ms),
        justification: granted.grant.justification.clone(),
        when: granted.grant.when.clone(),
        conflict: None,
    })
}
